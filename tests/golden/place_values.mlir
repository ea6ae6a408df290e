// RUN: jstitch opt %s --emit kernels --tune off | filecheck %s
// The exponentials of a softmax are kept in the arena (t1); the difference is computed again.

func.func @main(%x: tensor<512x768xf32>) -> tensor<512x768xf32> {
  %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %m = stablehlo.reduce(%x init: %low) applies stablehlo.maximum across dimensions = [1]
    : (tensor<512x768xf32>, tensor<f32>) -> tensor<512xf32>
  %mb = stablehlo.broadcast_in_dim %m, dims = [0] : (tensor<512xf32>) -> tensor<512x768xf32>
  %d = stablehlo.subtract %x, %mb : tensor<512x768xf32>
  %e = stablehlo.exponential %d : tensor<512x768xf32>
  %s = stablehlo.reduce(%e init: %zero) applies stablehlo.add across dimensions = [1]
    : (tensor<512x768xf32>, tensor<f32>) -> tensor<512xf32>
  %sb = stablehlo.broadcast_in_dim %s, dims = [0] : (tensor<512xf32>) -> tensor<512x768xf32>
  %y = stablehlo.divide %e, %sb : tensor<512x768xf32>
  return %y : tensor<512x768xf32>
}

// CHECK{LITERAL}: kernel kernel_row_0
// CHECK-NEXT{LITERAL}:   argument a0: tensor<512x768xf32>
// CHECK-NEXT{LITERAL}:   result o0: tensor<512x768xf32>
// CHECK-NEXT{LITERAL}:   reduce_0[GRID_24-THREAD_4, THREAD]S;
// CHECK-NEXT{LITERAL}:   exponential_0[GRID_24-THREAD_4, THREAD]S;
// CHECK-NEXT{LITERAL}:   reduce_1[GRID_24-THREAD_4, THREAD]S;
// CHECK-NEXT{LITERAL}:   divide_0[GRID_24-THREAD_4, THREAD];
// CHECK-NEXT{LITERAL}:   arena: 12416 bytes per program, scratch: 0 bytes
// CHECK-NEXT{LITERAL}:   arena t0: tensor<4x1xf32> bytes [0, 16)
// CHECK-NEXT{LITERAL}:   arena t1: tensor<4x768xf32> bytes [64, 12352)
// CHECK-NEXT{LITERAL}:   arena t2: tensor<4x1xf32> bytes [12352, 12368)
// CHECK-NEXT{LITERAL}:   phase 0: 92,661 ns on one core
// CHECK-NEXT{LITERAL}:     lane: 512 rows, 4 per step, 24 programs, work 5505024
// CHECK-NEXT{LITERAL}:       stage 0: reduce maximum
// CHECK-NEXT{LITERAL}:         // reduce: -:7
// CHECK-NEXT{LITERAL}:         prefetch lines [0, 64) of a0's 12288 bytes of the next step
// CHECK-NEXT{LITERAL}:         for r in [0, 4):
// CHECK-NEXT{LITERAL}:           acc1 = float32(-inf)
// CHECK-NEXT{LITERAL}:           for i1 in [0, 768):
// CHECK-NEXT{LITERAL}:             v0 = a0[r * 768 + i1]
// CHECK-NEXT{LITERAL}:             acc1 = max_reassoc(acc1, v0)
// CHECK-NEXT{LITERAL}:           t0[-q * 4 + r] = acc1
// CHECK-NEXT{LITERAL}:       stage 1: exponential, reduce add
// CHECK-NEXT{LITERAL}:         // broadcast_in_dim: -:9
// CHECK-NEXT{LITERAL}:         // subtract: -:10
// CHECK-NEXT{LITERAL}:         // exponential: -:11
// CHECK-NEXT{LITERAL}:         // reduce: -:12
// CHECK-NEXT{LITERAL}:         prefetch lines [64, 128) of a0's 12288 bytes of the next step
// CHECK-NEXT{LITERAL}:         for r in [0, 4):
// CHECK-NEXT{LITERAL}:           v3 = t0[-q * 4 + r]
// CHECK-NEXT{LITERAL}:           acc6 = float32(0.0)
// CHECK-NEXT{LITERAL}:           for i1 in [0, 768):
// CHECK-NEXT{LITERAL}:             v2 = a0[r * 768 + i1]
// CHECK-NEXT{LITERAL}:             v4 = v2 - v3
// CHECK-NEXT{LITERAL}:             v5 = exp_nonpositive(v4)
// CHECK-NEXT{LITERAL}:             t1[-q * 3072 + r * 768 + i1] = v5
// CHECK-NEXT{LITERAL}:             acc6 = add_reassoc(acc6, v5)
// CHECK-NEXT{LITERAL}:           t2[-q * 4 + r] = acc6
// CHECK-NEXT{LITERAL}:       stage 2: divide
// CHECK-NEXT{LITERAL}:         // broadcast_in_dim: -:14
// CHECK-NEXT{LITERAL}:         // divide: -:15
// CHECK-NEXT{LITERAL}:         prefetch lines [128, 192) of a0's 12288 bytes of the next step
// CHECK-NEXT{LITERAL}:         for r in [0, 4):
// CHECK-NEXT{LITERAL}:           v8 = t2[-q * 4 + r]
// CHECK-NEXT{LITERAL}:           for i1 in [0, 768):
// CHECK-NEXT{LITERAL}:             v7 = t1[-q * 3072 + r * 768 + i1]
// CHECK-NEXT{LITERAL}:             v9 = divide_invariant(v7, v8)
// CHECK-NEXT{LITERAL}:             o0[r * 768 + i1] = v9
