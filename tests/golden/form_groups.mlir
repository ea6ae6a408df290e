// RUN: jstitch opt %s --emit kernels --tune off | filecheck %s
// Row sums and column sums in one pass: partial sums in phase 0, combined in phase 1.

func.func @main(%x: tensor<2048x768xf32>, %dy: tensor<2048x768xf32>) -> (tensor<2048xf32>, tensor<768xf32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %p = stablehlo.multiply %x, %dy : tensor<2048x768xf32>
  %rows = stablehlo.reduce(%p init: %zero) applies stablehlo.add across dimensions = [1]
    : (tensor<2048x768xf32>, tensor<f32>) -> tensor<2048xf32>
  %columns = stablehlo.reduce(%dy init: %zero) applies stablehlo.add across dimensions = [0]
    : (tensor<2048x768xf32>, tensor<f32>) -> tensor<768xf32>
  return %rows, %columns : tensor<2048xf32>, tensor<768xf32>
}

// CHECK{LITERAL}: kernel kernel_row_col_0
// CHECK-NEXT{LITERAL}:   argument a0: tensor<2048x768xf32>
// CHECK-NEXT{LITERAL}:   argument a1: tensor<2048x768xf32>
// CHECK-NEXT{LITERAL}:   result o0: tensor<2048xf32>
// CHECK-NEXT{LITERAL}:   result o1: tensor<768xf32>
// CHECK-NEXT{LITERAL}:   scratch s0: tensor<32x768xf32>
// CHECK-NEXT{LITERAL}:   reduce_0[GRID_32-THREAD_4, THREAD];
// CHECK-NEXT{LITERAL}:   reduce_1.partial[GRID_32-THREAD_4, THREAD];
// CHECK-NEXT{LITERAL}:   reduce_1[THREAD, THREAD];
// CHECK-NEXT{LITERAL}:   arena: 64 bytes per program, scratch: 98304 bytes
// CHECK-NEXT{LITERAL}:   arena t0: tensor<4x1xf32> bytes [0, 16)
// CHECK-NEXT{LITERAL}:   phase 0: 257,301 ns on one core
// CHECK-NEXT{LITERAL}:     lane: 2048 rows, 4 per step, 32 programs, work 3145728
// CHECK-NEXT{LITERAL}:       stage 0 (once): start the partial sums
// CHECK-NEXT{LITERAL}:         for i in [0, 768):
// CHECK-NEXT{LITERAL}:           s0[p * 768 + i] = float32(0.0)
// CHECK-NEXT{LITERAL}:       stage 1: reduce add
// CHECK-NEXT{LITERAL}:         // multiply: -:6
// CHECK-NEXT{LITERAL}:         // reduce: -:7
// CHECK-NEXT{LITERAL}:         for r in [0, 4):
// CHECK-NEXT{LITERAL}:           acc3 = float32(0.0)
// CHECK-NEXT{LITERAL}:           for i1 in [0, 768):
// CHECK-NEXT{LITERAL}:             v0 = a0[r * 768 + i1]
// CHECK-NEXT{LITERAL}:             v1 = a1[r * 768 + i1]
// CHECK-NEXT{LITERAL}:             v2 = v0 * v1
// CHECK-NEXT{LITERAL}:             acc3 = add_reassoc(acc3, v2)
// CHECK-NEXT{LITERAL}:           t0[-q * 4 + r] = acc3
// CHECK-NEXT{LITERAL}:           o0[r] = acc3
// CHECK-NEXT{LITERAL}:       stage 2: partial_reduce add
// CHECK-NEXT{LITERAL}:         // partial_reduce: -:9
// CHECK-NEXT{LITERAL}:         for i1 in [0, 768):
// CHECK-NEXT{LITERAL}:           v4 = a1[q * 3072 + i1]
// CHECK-NEXT{LITERAL}:           v5 = a1[q * 3072 + i1 + 768]
// CHECK-NEXT{LITERAL}:           v6 = a1[q * 3072 + i1 + 1536]
// CHECK-NEXT{LITERAL}:           v7 = a1[q * 3072 + i1 + 2304]
// CHECK-NEXT{LITERAL}:           v8 = add_reassoc(v4, v5)
// CHECK-NEXT{LITERAL}:           v9 = add_reassoc(v6, v7)
// CHECK-NEXT{LITERAL}:           v10 = add_reassoc(v8, v9)
// CHECK-NEXT{LITERAL}:           v11 = s0[p * 768 + i1]
// CHECK-NEXT{LITERAL}:           v12 = v11 + v10
// CHECK-NEXT{LITERAL}:           s0[p * 768 + i1] = v12
// CHECK-NEXT{LITERAL}:   phase 1: 363 ns on one core
// CHECK-NEXT{LITERAL}:     lane: 1 rows, 1 per step, 1 programs, work 24576
// CHECK-NEXT{LITERAL}:       stage 0: reduce add
// CHECK-NEXT{LITERAL}:         // reduce: -:9
// CHECK-NEXT{LITERAL}:         for i in [0, 768):
// CHECK-NEXT{LITERAL}:           o1[i] = float32(0.0)
// CHECK-NEXT{LITERAL}:         for i0 in [0, 4):
// CHECK-NEXT{LITERAL}:           for i1 in [0, 768):
// CHECK-NEXT{LITERAL}:             v3 = s0[i0 * 6144 + i1]
// CHECK-NEXT{LITERAL}:             v4 = s0[i0 * 6144 + i1 + 768]
// CHECK-NEXT{LITERAL}:             v5 = s0[i0 * 6144 + i1 + 1536]
// CHECK-NEXT{LITERAL}:             v6 = s0[i0 * 6144 + i1 + 2304]
// CHECK-NEXT{LITERAL}:             v7 = s0[i0 * 6144 + i1 + 3072]
// CHECK-NEXT{LITERAL}:             v8 = s0[i0 * 6144 + i1 + 3840]
// CHECK-NEXT{LITERAL}:             v9 = s0[i0 * 6144 + i1 + 4608]
// CHECK-NEXT{LITERAL}:             v10 = s0[i0 * 6144 + i1 + 5376]
// CHECK-NEXT{LITERAL}:             v11 = add_reassoc(v3, v4)
// CHECK-NEXT{LITERAL}:             v12 = add_reassoc(v5, v6)
// CHECK-NEXT{LITERAL}:             v13 = add_reassoc(v7, v8)
// CHECK-NEXT{LITERAL}:             v14 = add_reassoc(v9, v10)
// CHECK-NEXT{LITERAL}:             v15 = add_reassoc(v11, v12)
// CHECK-NEXT{LITERAL}:             v16 = add_reassoc(v13, v14)
// CHECK-NEXT{LITERAL}:             v17 = add_reassoc(v15, v16)
// CHECK-NEXT{LITERAL}:             v18 = o1[i1]
// CHECK-NEXT{LITERAL}:             v19 = v18 + v17
// CHECK-NEXT{LITERAL}:             o1[i1] = v19
