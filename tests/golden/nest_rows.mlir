// RUN: jstitch opt %s --passes plan_layers,nest_rows --emit kernels --tune off | filecheck %s
// A matrix of 20 x 4 is added to each of 3: rows of 4 elements, whose number is divided by 20; too few for
// components.

func.func @main(%x: tensor<3x20x4xf32>, %w: tensor<20x4xf32>) -> tensor<3x20xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %wb = stablehlo.broadcast_in_dim %w, dims = [1, 2] : (tensor<20x4xf32>) -> tensor<3x20x4xf32>
  %y = stablehlo.add %x, %wb : tensor<3x20x4xf32>
  %e = stablehlo.exponential %y : tensor<3x20x4xf32>
  %s = stablehlo.reduce(%e init: %zero) applies stablehlo.add across dimensions = [2]
    : (tensor<3x20x4xf32>, tensor<f32>) -> tensor<3x20xf32>
  return %s : tensor<3x20xf32>
}

// CHECK{LITERAL}: kernel kernel_row_0
// CHECK-NEXT{LITERAL}:   argument a0: tensor<20x4xf32>
// CHECK-NEXT{LITERAL}:   argument a1: tensor<3x20x4xf32>
// CHECK-NEXT{LITERAL}:   result o0: tensor<3x20xf32>
// CHECK-NEXT{LITERAL}:   reduce_0[GRID_1, GRID, THREAD];
// CHECK-NEXT{LITERAL}:   arena: 64 bytes per program, scratch: 0 bytes
// CHECK-NEXT{LITERAL}:   arena t0: tensor<1x1xf32> bytes [0, 4)
// CHECK-NEXT{LITERAL}:   phase 0
// CHECK-NEXT{LITERAL}:     lane: 60 rows, 1 per step, 20 in an inner loop, 1 programs, work 240
// CHECK-NEXT{LITERAL}:       stage 0: reduce add
// CHECK-NEXT{LITERAL}:         // broadcast_in_dim: -:7
// CHECK-NEXT{LITERAL}:         // add: -:8
// CHECK-NEXT{LITERAL}:         // exponential: -:9
// CHECK-NEXT{LITERAL}:         // reduce: -:10
// CHECK-NEXT{LITERAL}:         for r in [0, 1):
// CHECK-NEXT{LITERAL}:           acc4 = float32(0.0)
// CHECK-NEXT{LITERAL}:           for i2 in [0, 4):
// CHECK-NEXT{LITERAL}:             v0 = a1[r * 4 + i2]
// CHECK-NEXT{LITERAL}:             v1 = a0[remainder_pos(r, 20) * 4 + i2]
// CHECK-NEXT{LITERAL}:             v2 = v0 + v1
// CHECK-NEXT{LITERAL}:             v3 = exp(v2)
// CHECK-NEXT{LITERAL}:             acc4 = add_reassoc(acc4, v3)
// CHECK-NEXT{LITERAL}:           t0[0] = acc4
// CHECK-NEXT{LITERAL}:           o0[r] = acc4
