// RUN: jstitch opt %s --emit kernels --tune off | filecheck %s
// A column sum: the innermost loop runs along the columns, which vectorises.

func.func @main(%x: tensor<512x64xf32>) -> tensor<64xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %e = stablehlo.exponential %x : tensor<512x64xf32>
  %y = stablehlo.reduce(%e init: %zero) applies stablehlo.add across dimensions = [0]
    : (tensor<512x64xf32>, tensor<f32>) -> tensor<64xf32>
  return %y : tensor<64xf32>
}

// CHECK{LITERAL}: kernel kernel_col_0
// CHECK-NEXT{LITERAL}:   argument a0: tensor<512x64xf32>
// CHECK-NEXT{LITERAL}:   result o0: tensor<64xf32>
// CHECK-NEXT{LITERAL}:   scratch s0: tensor<2x64xf32>
// CHECK-NEXT{LITERAL}:   reduce_0.partial[GRID_2-THREAD_4, THREAD];
// CHECK-NEXT{LITERAL}:   reduce_0[THREAD, THREAD];
// CHECK-NEXT{LITERAL}:   arena: 0 bytes per program, scratch: 512 bytes
// CHECK-NEXT{LITERAL}:   phase 0: 5,228 ns on one core
// CHECK-NEXT{LITERAL}:     lane: 512 rows, 4 per step, 2 programs, work 32768
// CHECK-NEXT{LITERAL}:       stage 0 (once): start the partial sums
// CHECK-NEXT{LITERAL}:         for i in [0, 64):
// CHECK-NEXT{LITERAL}:           s0[p * 64 + i] = float32(0.0)
// CHECK-NEXT{LITERAL}:       stage 1: partial_reduce add
// CHECK-NEXT{LITERAL}:         // exponential: -:6
// CHECK-NEXT{LITERAL}:         // partial_reduce: -:7
// CHECK-NEXT{LITERAL}:         for i1 in [0, 64):
// CHECK-NEXT{LITERAL}:           v0 = a0[q * 256 + i1]
// CHECK-NEXT{LITERAL}:           v1 = exp(v0)
// CHECK-NEXT{LITERAL}:           v2 = a0[q * 256 + i1 + 64]
// CHECK-NEXT{LITERAL}:           v3 = exp(v2)
// CHECK-NEXT{LITERAL}:           v4 = a0[q * 256 + i1 + 128]
// CHECK-NEXT{LITERAL}:           v5 = exp(v4)
// CHECK-NEXT{LITERAL}:           v6 = a0[q * 256 + i1 + 192]
// CHECK-NEXT{LITERAL}:           v7 = exp(v6)
// CHECK-NEXT{LITERAL}:           v8 = add_reassoc(v1, v3)
// CHECK-NEXT{LITERAL}:           v9 = add_reassoc(v5, v7)
// CHECK-NEXT{LITERAL}:           v10 = add_reassoc(v8, v9)
// CHECK-NEXT{LITERAL}:           v11 = s0[p * 64 + i1]
// CHECK-NEXT{LITERAL}:           v12 = v11 + v10
// CHECK-NEXT{LITERAL}:           s0[p * 64 + i1] = v12
// CHECK-NEXT{LITERAL}:   phase 1: 7 ns on one core
// CHECK-NEXT{LITERAL}:     lane: 1 rows, 1 per step, 1 programs, work 128
// CHECK-NEXT{LITERAL}:       stage 0: reduce add
// CHECK-NEXT{LITERAL}:         // reduce: -:7
// CHECK-NEXT{LITERAL}:         for i1 in [0, 64):
// CHECK-NEXT{LITERAL}:           v3 = s0[i1]
// CHECK-NEXT{LITERAL}:           v4 = s0[i1 + 64]
// CHECK-NEXT{LITERAL}:           v5 = add_reassoc(v3, v4)
// CHECK-NEXT{LITERAL}:           v6 = float32(0.0) + v5
// CHECK-NEXT{LITERAL}:           o0[i1] = v6
