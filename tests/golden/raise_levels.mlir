// RUN: jstitch opt %s --emit kernels --tune off | filecheck %s
// Phase 1 waits for a sum of all of %k; the softmax goes up to it, and is not written in phase 0.

func.func @main(%x: tensor<1024x512xf32>, %k: tensor<64x512xf32>) -> tensor<1024x512xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %t = stablehlo.reduce(%k init: %zero) applies stablehlo.add across dimensions = [0, 1]
    : (tensor<64x512xf32>, tensor<f32>) -> tensor<f32>
  %m = stablehlo.reduce(%x init: %low) applies stablehlo.maximum across dimensions = [1]
    : (tensor<1024x512xf32>, tensor<f32>) -> tensor<1024xf32>
  %mb = stablehlo.broadcast_in_dim %m, dims = [0] : (tensor<1024xf32>) -> tensor<1024x512xf32>
  %d = stablehlo.subtract %x, %mb : tensor<1024x512xf32>
  %e = stablehlo.exponential %d : tensor<1024x512xf32>
  %s = stablehlo.reduce(%e init: %zero) applies stablehlo.add across dimensions = [1]
    : (tensor<1024x512xf32>, tensor<f32>) -> tensor<1024xf32>
  %sb = stablehlo.broadcast_in_dim %s, dims = [0] : (tensor<1024xf32>) -> tensor<1024x512xf32>
  %p = stablehlo.divide %e, %sb : tensor<1024x512xf32>
  %tb = stablehlo.broadcast_in_dim %t, dims = [] : (tensor<f32>) -> tensor<1024x512xf32>
  %y = stablehlo.multiply %p, %tb : tensor<1024x512xf32>
  return %y : tensor<1024x512xf32>
}

// CHECK{LITERAL}: kernel kernel_row_total_0
// CHECK-NEXT{LITERAL}:   argument a0: tensor<64x512xf32>
// CHECK-NEXT{LITERAL}:   argument a1: tensor<1024x512xf32>
// CHECK-NEXT{LITERAL}:   result o0: tensor<1024x512xf32>
// CHECK-NEXT{LITERAL}:   scratch s0: tensor<2xf32>
// CHECK-NEXT{LITERAL}:   scratch s1: tensor<f32>
// CHECK-NEXT{LITERAL}:   reduce_0.partial[GRID_2, GRID];
// CHECK-NEXT{LITERAL}:   reduce_0[THREAD];
// CHECK-NEXT{LITERAL}:   reduce_1[GRID_32-THREAD_8, THREAD]S;
// CHECK-NEXT{LITERAL}:   exponential_0[GRID_32-THREAD_8, THREAD]S;
// CHECK-NEXT{LITERAL}:   reduce_2[GRID_32-THREAD_8, THREAD]S;
// CHECK-NEXT{LITERAL}:   multiply_0[GRID_32-THREAD_8, THREAD];
// CHECK-NEXT{LITERAL}:   arena: 16512 bytes per program, scratch: 128 bytes
// CHECK-NEXT{LITERAL}:   arena t0: tensor<1x1xf32> bytes [0, 4)
// CHECK-NEXT{LITERAL}:   arena t0: tensor<8x1xf32> bytes [0, 32)
// CHECK-NEXT{LITERAL}:   arena t1: tensor<8x512xf32> bytes [64, 16448)
// CHECK-NEXT{LITERAL}:   arena t2: tensor<8x1xf32> bytes [16448, 16480)
// CHECK-NEXT{LITERAL}:   phase 0: 2,166 ns on one core
// CHECK-NEXT{LITERAL}:     lane: 32768 rows, 1 per step, in blocks of 2048, 2 programs, work 32768
// CHECK-NEXT{LITERAL}:       stage 0 (once): start the partial sums
// CHECK-NEXT{LITERAL}:         for i in [0, 1):
// CHECK-NEXT{LITERAL}:           s0[p] = float32(0.0)
// CHECK-NEXT{LITERAL}:       stage 1: partial_reduce add
// CHECK-NEXT{LITERAL}:         // partial_reduce: -:7
// CHECK-NEXT{LITERAL}:         acc1 = float32(0.0)
// CHECK-NEXT{LITERAL}:         for r in [0, 1):
// CHECK-NEXT{LITERAL}:           v0 = a0[r]
// CHECK-NEXT{LITERAL}:           acc1 = add_reassoc(acc1, v0)
// CHECK-NEXT{LITERAL}:         v2 = s0[p]
// CHECK-NEXT{LITERAL}:         total3 = v2 + acc1
// CHECK-NEXT{LITERAL}:         s0[p] = total3
// CHECK-NEXT{LITERAL}:   phase 1: 1 ns on one core
// CHECK-NEXT{LITERAL}:     lane: 1 rows, 1 per step, 1 programs, work 2
// CHECK-NEXT{LITERAL}:       stage 0: reduce add
// CHECK-NEXT{LITERAL}:         // reduce: -:7
// CHECK-NEXT{LITERAL}:         acc1 = float32(0.0)
// CHECK-NEXT{LITERAL}:         for i0 in [0, 2):
// CHECK-NEXT{LITERAL}:           v0 = s0[i0]
// CHECK-NEXT{LITERAL}:           acc1 = add_reassoc(acc1, v0)
// CHECK-NEXT{LITERAL}:         t0[0] = acc1
// CHECK-NEXT{LITERAL}:         s1[0] = acc1
// CHECK-NEXT{LITERAL}:   phase 2: 129,253 ns on one core
// CHECK-NEXT{LITERAL}:     lane: 1024 rows, 8 per step, 32 programs, work 5767168
// CHECK-NEXT{LITERAL}:       stage 0: reduce maximum
// CHECK-NEXT{LITERAL}:         // reduce: -:9
// CHECK-NEXT{LITERAL}:         prefetch lines [0, 85) of a1's 16384 bytes of the next step
// CHECK-NEXT{LITERAL}:         for r in [0, 8):
// CHECK-NEXT{LITERAL}:           acc1 = float32(-inf)
// CHECK-NEXT{LITERAL}:           for i1 in [0, 512):
// CHECK-NEXT{LITERAL}:             v0 = a1[r * 512 + i1]
// CHECK-NEXT{LITERAL}:             acc1 = max_reassoc(acc1, v0)
// CHECK-NEXT{LITERAL}:           t0[-q * 8 + r] = acc1
// CHECK-NEXT{LITERAL}:       stage 1: exponential, reduce add
// CHECK-NEXT{LITERAL}:         // broadcast_in_dim: -:11
// CHECK-NEXT{LITERAL}:         // subtract: -:12
// CHECK-NEXT{LITERAL}:         // exponential: -:13
// CHECK-NEXT{LITERAL}:         // reduce: -:14
// CHECK-NEXT{LITERAL}:         prefetch lines [85, 170) of a1's 16384 bytes of the next step
// CHECK-NEXT{LITERAL}:         for r in [0, 8):
// CHECK-NEXT{LITERAL}:           v3 = t0[-q * 8 + r]
// CHECK-NEXT{LITERAL}:           acc6 = float32(0.0)
// CHECK-NEXT{LITERAL}:           for i1 in [0, 512):
// CHECK-NEXT{LITERAL}:             v2 = a1[r * 512 + i1]
// CHECK-NEXT{LITERAL}:             v4 = v2 - v3
// CHECK-NEXT{LITERAL}:             v5 = exp_nonpositive(v4)
// CHECK-NEXT{LITERAL}:             t1[-q * 4096 + r * 512 + i1] = v5
// CHECK-NEXT{LITERAL}:             acc6 = add_reassoc(acc6, v5)
// CHECK-NEXT{LITERAL}:           t2[-q * 8 + r] = acc6
// CHECK-NEXT{LITERAL}:       stage 2: multiply
// CHECK-NEXT{LITERAL}:         // broadcast_in_dim: -:16
// CHECK-NEXT{LITERAL}:         // divide: -:17
// CHECK-NEXT{LITERAL}:         // broadcast_in_dim: -:18
// CHECK-NEXT{LITERAL}:         // multiply: -:19
// CHECK-NEXT{LITERAL}:         prefetch lines [170, 256) of a1's 16384 bytes of the next step
// CHECK-NEXT{LITERAL}:         v10 = s1[0]
// CHECK-NEXT{LITERAL}:         for r in [0, 8):
// CHECK-NEXT{LITERAL}:           v8 = t2[-q * 8 + r]
// CHECK-NEXT{LITERAL}:           for i1 in [0, 512):
// CHECK-NEXT{LITERAL}:             v7 = t1[-q * 4096 + r * 512 + i1]
// CHECK-NEXT{LITERAL}:             v9 = divide_invariant(v7, v8)
// CHECK-NEXT{LITERAL}:             v11 = v9 * v10
// CHECK-NEXT{LITERAL}:             o0[r * 512 + i1] = v11
