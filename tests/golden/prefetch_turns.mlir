// RUN: jstitch opt %s --passes plan_layers,prefetch_turns --emit kernels --target h200 --tune off | filecheck %s
// Each program adds up its rows' columns: it works on one row after another, and asks for the next one.

func.func @main(%x: tensor<4096x1024xf32>, %zero: tensor<f32>) -> (tensor<4096x1024xf32>, tensor<1024xf32>) {
  %m = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [1]
    : (tensor<4096x1024xf32>, tensor<f32>) -> tensor<4096xf32>
  %b = stablehlo.broadcast_in_dim %m, dims = [0] : (tensor<4096xf32>) -> tensor<4096x1024xf32>
  %y = stablehlo.multiply %x, %b : tensor<4096x1024xf32>
  %c = stablehlo.reduce(%y init: %zero) applies stablehlo.add across dimensions = [0]
    : (tensor<4096x1024xf32>, tensor<f32>) -> tensor<1024xf32>
  return %y, %c : tensor<4096x1024xf32>, tensor<1024xf32>
}

// CHECK{LITERAL}: kernel kernel_row_0
// CHECK-NEXT{LITERAL}:   argument a0: tensor<4096x1024xf32>
// CHECK-NEXT{LITERAL}:   argument a1: tensor<f32>
// CHECK-NEXT{LITERAL}:   result o0: tensor<4096xf32>
// CHECK-NEXT{LITERAL}:   reduce_0[GRID, CTA];
// CHECK-NEXT{LITERAL}:   arena: 64 bytes per program, scratch: 0 bytes
// CHECK-NEXT{LITERAL}:   arena t0: tensor<1x1xf32> bytes [0, 4)
// CHECK-NEXT{LITERAL}:   phase 0
// CHECK-NEXT{LITERAL}:     lane: 4096 rows, 1 per step, 198 programs, work 4194304
// CHECK-NEXT{LITERAL}:       stage 0: reduce add
// CHECK-NEXT{LITERAL}:         // reduce: -:5
// CHECK-NEXT{LITERAL}:         v2 = a1[0]
// CHECK-NEXT{LITERAL}:         for r in [0, 1):
// CHECK-NEXT{LITERAL}:           acc1 = v2
// CHECK-NEXT{LITERAL}:           for i1 in [0, 1024):
// CHECK-NEXT{LITERAL}:             v0 = a0[r * 1024 + i1]
// CHECK-NEXT{LITERAL}:             acc1 = add_reassoc(acc1, v0)
// CHECK-NEXT{LITERAL}:           t0[0] = acc1
// CHECK-NEXT{LITERAL}:           o0[r] = acc1
// CHECK-NEXT{LITERAL}: kernel kernel_col_0
// CHECK-NEXT{LITERAL}:   argument a0: tensor<4096xf32>
// CHECK-NEXT{LITERAL}:   argument a1: tensor<4096x1024xf32>
// CHECK-NEXT{LITERAL}:   argument a2: tensor<f32>
// CHECK-NEXT{LITERAL}:   result o0: tensor<4096x1024xf32>
// CHECK-NEXT{LITERAL}:   result o1: tensor<1024xf32>
// CHECK-NEXT{LITERAL}:   scratch s0: tensor<198x1024xf32>
// CHECK-NEXT{LITERAL}:   multiply_0[GRID, CTA];
// CHECK-NEXT{LITERAL}:   reduce_0.partial[GRID, CTA];
// CHECK-NEXT{LITERAL}:   reduce_0[CTA, CTA];
// CHECK-NEXT{LITERAL}:   arena: 4096 bytes per program, scratch: 811008 bytes
// CHECK-NEXT{LITERAL}:   arena t0: tensor<1x1024xf32> bytes [0, 4096)
// CHECK-NEXT{LITERAL}:   phase 0
// CHECK-NEXT{LITERAL}:     lane: 4096 rows, 1 per step, 198 programs, work 8388608
// CHECK-NEXT{LITERAL}:       stage 0 (once): start the partial sums
// CHECK-NEXT{LITERAL}:         for i in [0, 1024):
// CHECK-NEXT{LITERAL}:           s0[p * 1024 + i] = float32(0.0)
// CHECK-NEXT{LITERAL}:       stage 1: multiply, partial_reduce add
// CHECK-NEXT{LITERAL}:         // broadcast_in_dim: -:7
// CHECK-NEXT{LITERAL}:         // multiply: -:8
// CHECK-NEXT{LITERAL}:         // partial_reduce: -:9
// CHECK-NEXT{LITERAL}:         prefetch lines [0, 64) of a1's 4096 bytes of the next step
// CHECK-NEXT{LITERAL}:         for r in [0, 1):
// CHECK-NEXT{LITERAL}:           v1 = a0[r]
// CHECK-NEXT{LITERAL}:           for i1 in [0, 1024):
// CHECK-NEXT{LITERAL}:             v0 = a1[r * 1024 + i1]
// CHECK-NEXT{LITERAL}:             v2 = v0 * v1
// CHECK-NEXT{LITERAL}:             o0[r * 1024 + i1] = v2
// CHECK-NEXT{LITERAL}:             v3 = s0[p * 1024 + i1]
// CHECK-NEXT{LITERAL}:             v4 = add_reassoc(v3, v2)
// CHECK-NEXT{LITERAL}:             s0[p * 1024 + i1] = v4
// CHECK-NEXT{LITERAL}:   phase 1
// CHECK-NEXT{LITERAL}:     lane: 1 rows, 1 per step, 1 programs, work 202752
// CHECK-NEXT{LITERAL}:       stage 0: reduce add
// CHECK-NEXT{LITERAL}:         // reduce: -:9
// CHECK-NEXT{LITERAL}:         v2 = a2[0]
// CHECK-NEXT{LITERAL}:         for i1 in [0, 1024):
// CHECK-NEXT{LITERAL}:           acc1 = v2
// CHECK-NEXT{LITERAL}:           for i0 in [0, 198):
// CHECK-NEXT{LITERAL}:             v0 = s0[i0 * 1024 + i1]
// CHECK-NEXT{LITERAL}:             acc1 = add_reassoc(acc1, v0)
// CHECK-NEXT{LITERAL}:           t0[i1] = acc1
// CHECK-NEXT{LITERAL}:           o1[i1] = acc1
