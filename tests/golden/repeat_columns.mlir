// RUN: jstitch opt %s --passes plan_layers,repeat_columns --emit kernels --tune off | filecheck %s
// Three columns fill no vector: what they are multiplied by is repeated in a tile, once for all rows.

func.func @main(%x: tensor<500x64x3xf32>, %s: tensor<3xf32>) -> tensor<500x64x3xf32> {
  %sb = stablehlo.broadcast_in_dim %s, dims = [2] : (tensor<3xf32>) -> tensor<500x64x3xf32>
  %m = stablehlo.multiply %x, %sb : tensor<500x64x3xf32>
  %y = stablehlo.tanh %m : tensor<500x64x3xf32>
  return %y : tensor<500x64x3xf32>
}

// CHECK{LITERAL}: kernel kernel_elementwise_0
// CHECK-NEXT{LITERAL}:   argument a0: tensor<3xf32>
// CHECK-NEXT{LITERAL}:   argument a1: tensor<500x64x3xf32>
// CHECK-NEXT{LITERAL}:   result o0: tensor<500x64x3xf32>
// CHECK-NEXT{LITERAL}:   tanh_0[GRID_5, THREAD, THREAD];
// CHECK-NEXT{LITERAL}:   arena: 768 bytes per program, scratch: 0 bytes
// CHECK-NEXT{LITERAL}:   arena e0: tensor<192xf32> bytes [0, 768)
// CHECK-NEXT{LITERAL}:   phase 0
// CHECK-NEXT{LITERAL}:     lane: 500 rows, 1 per step, 5 programs, work 960000
// CHECK-NEXT{LITERAL}:       stage 0 (once): repeat what few columns have
// CHECK-NEXT{LITERAL}:         for i in [0, 64):
// CHECK-NEXT{LITERAL}:           for j in [0, 3):
// CHECK-NEXT{LITERAL}:             v0 = a0[j]
// CHECK-NEXT{LITERAL}:             e0[i * 3 + j] = v0
// CHECK-NEXT{LITERAL}:       stage 1: tanh
// CHECK-NEXT{LITERAL}:         // broadcast_in_dim: -:5
// CHECK-NEXT{LITERAL}:         // multiply: -:6
// CHECK-NEXT{LITERAL}:         // tanh: -:7
// CHECK-NEXT{LITERAL}:         for r in [0, 1):
// CHECK-NEXT{LITERAL}:           for i2 in [0, 192):
// CHECK-NEXT{LITERAL}:             v4 = a1[r * 192 + i2]
// CHECK-NEXT{LITERAL}:             v5 = e0[i2]
// CHECK-NEXT{LITERAL}:             v6 = v4 * v5
// CHECK-NEXT{LITERAL}:             v7 = tanh(v6)
// CHECK-NEXT{LITERAL}:             o0[r * 192 + i2] = v7
