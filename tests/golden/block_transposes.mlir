// RUN: jstitch opt %s --passes plan_layers,block_transposes --emit kernels --tune off | filecheck %s
// Columns less their largest element, and the transposition of that: 17 rows are written for 40 columns.

func.func @main(%x: tensor<3x17x40xf32>) -> tensor<3x40x17xf32> {
  %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %m = stablehlo.reduce(%x init: %low) applies stablehlo.maximum across dimensions = [1]
    : (tensor<3x17x40xf32>, tensor<f32>) -> tensor<3x40xf32>
  %mb = stablehlo.broadcast_in_dim %m, dims = [0, 2] : (tensor<3x40xf32>) -> tensor<3x17x40xf32>
  %y = stablehlo.subtract %x, %mb : tensor<3x17x40xf32>
  %t = stablehlo.transpose %y, dims = [0, 2, 1] : (tensor<3x17x40xf32>) -> tensor<3x40x17xf32>
  %z = stablehlo.add %t, %t : tensor<3x40x17xf32>
  return %z : tensor<3x40x17xf32>
}

// CHECK{LITERAL}: kernel kernel_col_0
// CHECK-NEXT{LITERAL}:   argument a0: tensor<3x17x40xf32>
// CHECK-NEXT{LITERAL}:   result o0: tensor<3x40x17xf32>
// CHECK-NEXT{LITERAL}:   reduce_0[GRID_1, THREAD, THREAD]S;
// CHECK-NEXT{LITERAL}:   add_0[GRID_1, THREAD, THREAD];
// CHECK-NEXT{LITERAL}:   arena: 192 bytes per program, scratch: 0 bytes
// CHECK-NEXT{LITERAL}:   arena t0: tensor<1x40xf32> bytes [0, 160)
// CHECK-NEXT{LITERAL}:   phase 0
// CHECK-NEXT{LITERAL}:     lane: 3 rows, 1 per step, 1 programs, work 4080
// CHECK-NEXT{LITERAL}:       stage 0: reduce maximum
// CHECK-NEXT{LITERAL}:         // reduce: -:6
// CHECK-NEXT{LITERAL}:         for i in [0, 40):
// CHECK-NEXT{LITERAL}:           t0[i] = float32(-inf)
// CHECK-NEXT{LITERAL}:         for r in [0, 1):
// CHECK-NEXT{LITERAL}:           for i1 in [0, 2):
// CHECK-NEXT{LITERAL}:             for i2 in [0, 40):
// CHECK-NEXT{LITERAL}:               v3 = a0[r * 680 + i1 * 320 + i2]
// CHECK-NEXT{LITERAL}:               v4 = a0[r * 680 + i1 * 320 + i2 + 40]
// CHECK-NEXT{LITERAL}:               v5 = a0[r * 680 + i1 * 320 + i2 + 80]
// CHECK-NEXT{LITERAL}:               v6 = a0[r * 680 + i1 * 320 + i2 + 120]
// CHECK-NEXT{LITERAL}:               v7 = a0[r * 680 + i1 * 320 + i2 + 160]
// CHECK-NEXT{LITERAL}:               v8 = a0[r * 680 + i1 * 320 + i2 + 200]
// CHECK-NEXT{LITERAL}:               v9 = a0[r * 680 + i1 * 320 + i2 + 240]
// CHECK-NEXT{LITERAL}:               v10 = a0[r * 680 + i1 * 320 + i2 + 280]
// CHECK-NEXT{LITERAL}:               v11 = max_reassoc(v3, v4)
// CHECK-NEXT{LITERAL}:               v12 = max_reassoc(v5, v6)
// CHECK-NEXT{LITERAL}:               v13 = max_reassoc(v7, v8)
// CHECK-NEXT{LITERAL}:               v14 = max_reassoc(v9, v10)
// CHECK-NEXT{LITERAL}:               v15 = max_reassoc(v11, v12)
// CHECK-NEXT{LITERAL}:               v16 = max_reassoc(v13, v14)
// CHECK-NEXT{LITERAL}:               v17 = max_reassoc(v15, v16)
// CHECK-NEXT{LITERAL}:               v18 = t0[i2]
// CHECK-NEXT{LITERAL}:               v19 = maximum(v18, v17)
// CHECK-NEXT{LITERAL}:               t0[i2] = v19
// CHECK-NEXT{LITERAL}:         for r in [0, 1):
// CHECK-NEXT{LITERAL}:           for i1 in [0, 1):
// CHECK-NEXT{LITERAL}:             for i2 in [0, 40):
// CHECK-NEXT{LITERAL}:               v20 = a0[r * 680 + i2 + 640]
// CHECK-NEXT{LITERAL}:               v21 = t0[i2]
// CHECK-NEXT{LITERAL}:               v22 = max_reassoc(v21, v20)
// CHECK-NEXT{LITERAL}:               t0[i2] = v22
// CHECK-NEXT{LITERAL}:       stage 1: add
// CHECK-NEXT{LITERAL}:         // broadcast_in_dim: -:8
// CHECK-NEXT{LITERAL}:         // subtract: -:9
// CHECK-NEXT{LITERAL}:         // transpose: -:10
// CHECK-NEXT{LITERAL}:         // add: -:11
// CHECK-NEXT{LITERAL}:         for r in [0, 1):
// CHECK-NEXT{LITERAL}:           for i1 in [0, 2):
// CHECK-NEXT{LITERAL}:             for i2 in [0, 17):
// CHECK-NEXT{LITERAL}:               for i1b in [0, 16):
// CHECK-NEXT{LITERAL}:                 v27 = a0[r * 680 + i2 * 40 + i1 * 16 + i1b]
// CHECK-NEXT{LITERAL}:                 v28 = t0[i1 * 16 + i1b]
// CHECK-NEXT{LITERAL}:                 v29 = v27 - v28
// CHECK-NEXT{LITERAL}:                 v30 = v29 + v29
// CHECK-NEXT{LITERAL}:                 o0[r * 680 + i1 * 272 + i1b * 17 + i2] = v30
// CHECK-NEXT{LITERAL}:         for r in [0, 1):
// CHECK-NEXT{LITERAL}:           for i2 in [0, 17):
// CHECK-NEXT{LITERAL}:             for i1b in [0, 8):
// CHECK-NEXT{LITERAL}:               v27 = a0[r * 680 + i2 * 40 + i1b + 32]
// CHECK-NEXT{LITERAL}:               v28 = t0[i1b + 32]
// CHECK-NEXT{LITERAL}:               v29 = v27 - v28
// CHECK-NEXT{LITERAL}:               v30 = v29 + v29
// CHECK-NEXT{LITERAL}:               o0[r * 680 + i1b * 17 + i2 + 544] = v30
