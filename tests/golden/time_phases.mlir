// RUN: jstitch opt %s --passes plan_layers,time_phases --emit kernels --tune off | filecheck %s
// Rows are worth waking threads for, their sum is not.

func.func @main(%x: tensor<2048x512xf32>) -> tensor<512xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %e = stablehlo.exponential %x : tensor<2048x512xf32>
  %s = stablehlo.reduce(%e init: %zero) applies stablehlo.add across dimensions = [0]
    : (tensor<2048x512xf32>, tensor<f32>) -> tensor<512xf32>
  return %s : tensor<512xf32>
}

// CHECK{LITERAL}: kernel kernel_col_0
// CHECK-NEXT{LITERAL}:   argument a0: tensor<2048x512xf32>
// CHECK-NEXT{LITERAL}:   result o0: tensor<512xf32>
// CHECK-NEXT{LITERAL}:   scratch s0: tensor<32x512xf32>
// CHECK-NEXT{LITERAL}:   reduce_0.partial[GRID_32-THREAD_4, THREAD];
// CHECK-NEXT{LITERAL}:   reduce_0[THREAD, THREAD];
// CHECK-NEXT{LITERAL}:   arena: 0 bytes per program, scratch: 65536 bytes
// CHECK-NEXT{LITERAL}:   phase 0: 180,602 ns on one core
// CHECK-NEXT{LITERAL}:     lane: 2048 rows, 4 per step, 32 programs, work 1048576
// CHECK-NEXT{LITERAL}:       stage 0 (once): start the partial sums
// CHECK-NEXT{LITERAL}:         for i in [0, 512):
// CHECK-NEXT{LITERAL}:           s0[p * 512 + i] = float32(0.0)
// CHECK-NEXT{LITERAL}:       stage 1: partial_reduce add
// CHECK-NEXT{LITERAL}:         // exponential: -:6
// CHECK-NEXT{LITERAL}:         // partial_reduce: -:7
// CHECK-NEXT{LITERAL}:         for r in [0, 4):
// CHECK-NEXT{LITERAL}:           for i1 in [0, 512):
// CHECK-NEXT{LITERAL}:             v0 = a0[r * 512 + i1]
// CHECK-NEXT{LITERAL}:             v1 = exp(v0)
// CHECK-NEXT{LITERAL}:             v2 = s0[p * 512 + i1]
// CHECK-NEXT{LITERAL}:             v3 = add_reassoc(v2, v1)
// CHECK-NEXT{LITERAL}:             s0[p * 512 + i1] = v3
// CHECK-NEXT{LITERAL}:   phase 1: 243 ns on one core
// CHECK-NEXT{LITERAL}:     lane: 1 rows, 1 per step, 1 programs, work 16384
// CHECK-NEXT{LITERAL}:       stage 0: reduce add
// CHECK-NEXT{LITERAL}:         // reduce: -:7
// CHECK-NEXT{LITERAL}:         for i in [0, 512):
// CHECK-NEXT{LITERAL}:           o0[i] = float32(0.0)
// CHECK-NEXT{LITERAL}:         for i0 in [0, 4):
// CHECK-NEXT{LITERAL}:           for i1 in [0, 512):
// CHECK-NEXT{LITERAL}:             v3 = s0[i0 * 4096 + i1]
// CHECK-NEXT{LITERAL}:             v4 = s0[i0 * 4096 + i1 + 512]
// CHECK-NEXT{LITERAL}:             v5 = s0[i0 * 4096 + i1 + 1024]
// CHECK-NEXT{LITERAL}:             v6 = s0[i0 * 4096 + i1 + 1536]
// CHECK-NEXT{LITERAL}:             v7 = s0[i0 * 4096 + i1 + 2048]
// CHECK-NEXT{LITERAL}:             v8 = s0[i0 * 4096 + i1 + 2560]
// CHECK-NEXT{LITERAL}:             v9 = s0[i0 * 4096 + i1 + 3072]
// CHECK-NEXT{LITERAL}:             v10 = s0[i0 * 4096 + i1 + 3584]
// CHECK-NEXT{LITERAL}:             v11 = add_reassoc(v3, v4)
// CHECK-NEXT{LITERAL}:             v12 = add_reassoc(v5, v6)
// CHECK-NEXT{LITERAL}:             v13 = add_reassoc(v7, v8)
// CHECK-NEXT{LITERAL}:             v14 = add_reassoc(v9, v10)
// CHECK-NEXT{LITERAL}:             v15 = add_reassoc(v11, v12)
// CHECK-NEXT{LITERAL}:             v16 = add_reassoc(v13, v14)
// CHECK-NEXT{LITERAL}:             v17 = add_reassoc(v15, v16)
// CHECK-NEXT{LITERAL}:             v18 = o0[i1]
// CHECK-NEXT{LITERAL}:             v19 = v18 + v17
// CHECK-NEXT{LITERAL}:             o0[i1] = v19
