// RUN: jstitch opt %s --passes plan_layers,distribute_loops --emit kernels --tune off | filecheck %s
// Rows go to other places, so that their exponentials are made in the loop around eight elements each.

func.func @main(%x: tensor<2x40x24xf32>, %z: tensor<2x40x24x8xf32>) -> tensor<40x2x24x8xf32> {
  %e = stablehlo.exponential %x : tensor<2x40x24xf32>
  %eb = stablehlo.broadcast_in_dim %e, dims = [0, 1, 2] : (tensor<2x40x24xf32>) -> tensor<2x40x24x8xf32>
  %y = stablehlo.multiply %eb, %z : tensor<2x40x24x8xf32>
  %t = stablehlo.transpose %y, dims = [1, 0, 2, 3] : (tensor<2x40x24x8xf32>) -> tensor<40x2x24x8xf32>
  return %t : tensor<40x2x24x8xf32>
}

// CHECK{LITERAL}: kernel kernel_elementwise_0
// CHECK-NEXT{LITERAL}:   argument a0: tensor<2x40x24xf32>
// CHECK-NEXT{LITERAL}:   argument a1: tensor<2x40x24x8xf32>
// CHECK-NEXT{LITERAL}:   result o0: tensor<40x2x24x8xf32>
// CHECK-NEXT{LITERAL}:   transpose_0[GRID_1, GRID, THREAD, THREAD];
// CHECK-NEXT{LITERAL}:   arena: 128 bytes per program, scratch: 0 bytes
// CHECK-NEXT{LITERAL}:   arena d0: tensor<24xf32> bytes [0, 96)
// CHECK-NEXT{LITERAL}:   phase 0
// CHECK-NEXT{LITERAL}:     lane: 80 rows, 1 per step, 1 programs, work 15360
// CHECK-NEXT{LITERAL}:       stage 0: transpose
// CHECK-NEXT{LITERAL}:         // exponential: -:5
// CHECK-NEXT{LITERAL}:         // broadcast_in_dim: -:6
// CHECK-NEXT{LITERAL}:         // multiply: -:7
// CHECK-NEXT{LITERAL}:         // transpose: -:8
// CHECK-NEXT{LITERAL}:         for r in [0, 1):
// CHECK-NEXT{LITERAL}:           for i2 in [0, 24):
// CHECK-NEXT{LITERAL}:             v4 = a0[remainder_pos(r, 2) * 960 + quotient(r, 2) * 24 + i2]
// CHECK-NEXT{LITERAL}:             v5 = exp(v4)
// CHECK-NEXT{LITERAL}:             d0[i2] = v5
// CHECK-NEXT{LITERAL}:         for r in [0, 1):
// CHECK-NEXT{LITERAL}:           for i2 in [0, 24):
// CHECK-NEXT{LITERAL}:             v5 = d0[i2]
// CHECK-NEXT{LITERAL}:             for i3 in [0, 8):
// CHECK-NEXT{LITERAL}:               v6 = a1[remainder_pos(r, 2) * 7680 + quotient(r, 2) * 192 + i2 * 8 + i3]
// CHECK-NEXT{LITERAL}:               v7 = v5 * v6
// CHECK-NEXT{LITERAL}:               o0[r * 192 + i2 * 8 + i3] = v7
