// RUN: jstitch opt %s --passes plan_layers,bound_exponents --emit kernels --tune off | filecheck %s
// A value less the maximum of its row is never above 0, and its exponential never overflows.

func.func @main(%x: tensor<64x512xf32>) -> tensor<64x512xf32> {
  %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %m = stablehlo.reduce(%x init: %low) applies stablehlo.maximum across dimensions = [1]
    : (tensor<64x512xf32>, tensor<f32>) -> tensor<64xf32>
  %mb = stablehlo.broadcast_in_dim %m, dims = [0] : (tensor<64xf32>) -> tensor<64x512xf32>
  %c = stablehlo.subtract %x, %mb : tensor<64x512xf32>
  %e = stablehlo.exponential %c : tensor<64x512xf32>
  %s = stablehlo.reduce(%e init: %zero) applies stablehlo.add across dimensions = [1]
    : (tensor<64x512xf32>, tensor<f32>) -> tensor<64xf32>
  %sb = stablehlo.broadcast_in_dim %s, dims = [0] : (tensor<64xf32>) -> tensor<64x512xf32>
  %y = stablehlo.divide %e, %sb : tensor<64x512xf32>
  return %y : tensor<64x512xf32>
}

// CHECK{LITERAL}: kernel kernel_row_0
// CHECK-NEXT{LITERAL}:   argument a0: tensor<64x512xf32>
// CHECK-NEXT{LITERAL}:   result o0: tensor<64x512xf32>
// CHECK-NEXT{LITERAL}:   reduce_0[GRID_2-THREAD_8, THREAD]S;
// CHECK-NEXT{LITERAL}:   exponential_0[GRID_2-THREAD_8, THREAD]S;
// CHECK-NEXT{LITERAL}:   reduce_1[GRID_2-THREAD_8, THREAD]S;
// CHECK-NEXT{LITERAL}:   divide_0[GRID_2-THREAD_8, THREAD];
// CHECK-NEXT{LITERAL}:   arena: 16512 bytes per program, scratch: 0 bytes
// CHECK-NEXT{LITERAL}:   arena t0: tensor<8x1xf32> bytes [0, 32)
// CHECK-NEXT{LITERAL}:   arena t1: tensor<8x512xf32> bytes [64, 16448)
// CHECK-NEXT{LITERAL}:   arena t2: tensor<8x1xf32> bytes [16448, 16480)
// CHECK-NEXT{LITERAL}:   phase 0
// CHECK-NEXT{LITERAL}:     lane: 64 rows, 8 per step, 2 programs, work 458752
// CHECK-NEXT{LITERAL}:       stage 0: reduce maximum
// CHECK-NEXT{LITERAL}:         // reduce: -:7
// CHECK-NEXT{LITERAL}:         for r in [0, 8):
// CHECK-NEXT{LITERAL}:           acc1 = float32(-inf)
// CHECK-NEXT{LITERAL}:           for i1 in [0, 512):
// CHECK-NEXT{LITERAL}:             v0 = a0[r * 512 + i1]
// CHECK-NEXT{LITERAL}:             acc1 = max_reassoc(acc1, v0)
// CHECK-NEXT{LITERAL}:           t0[-q * 8 + r] = acc1
// CHECK-NEXT{LITERAL}:       stage 1: exponential, reduce add
// CHECK-NEXT{LITERAL}:         // broadcast_in_dim: -:9
// CHECK-NEXT{LITERAL}:         // subtract: -:10
// CHECK-NEXT{LITERAL}:         // exponential: -:11
// CHECK-NEXT{LITERAL}:         // reduce: -:12
// CHECK-NEXT{LITERAL}:         for r in [0, 8):
// CHECK-NEXT{LITERAL}:           v3 = t0[-q * 8 + r]
// CHECK-NEXT{LITERAL}:           acc6 = float32(0.0)
// CHECK-NEXT{LITERAL}:           for i1 in [0, 512):
// CHECK-NEXT{LITERAL}:             v2 = a0[r * 512 + i1]
// CHECK-NEXT{LITERAL}:             v4 = v2 - v3
// CHECK-NEXT{LITERAL}:             v5 = exp_nonpositive(v4)
// CHECK-NEXT{LITERAL}:             t1[-q * 4096 + r * 512 + i1] = v5
// CHECK-NEXT{LITERAL}:             acc6 = add_reassoc(acc6, v5)
// CHECK-NEXT{LITERAL}:           t2[-q * 8 + r] = acc6
// CHECK-NEXT{LITERAL}:       stage 2: divide
// CHECK-NEXT{LITERAL}:         // broadcast_in_dim: -:14
// CHECK-NEXT{LITERAL}:         // divide: -:15
// CHECK-NEXT{LITERAL}:         for r in [0, 8):
// CHECK-NEXT{LITERAL}:           v8 = t2[-q * 8 + r]
// CHECK-NEXT{LITERAL}:           for i1 in [0, 512):
// CHECK-NEXT{LITERAL}:             v7 = t1[-q * 4096 + r * 512 + i1]
// CHECK-NEXT{LITERAL}:             v9 = v7 / v8
// CHECK-NEXT{LITERAL}:             o0[r * 512 + i1] = v9
