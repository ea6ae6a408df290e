// RUN: jstitch opt %s --passes plan_layers,prefetch_rows --emit kernels --tune off | filecheck %s
// While a row's maximum is subtracted, the next row is on its way.

func.func @main(%x: tensor<1024x2048xf32>) -> tensor<1024x2048xf32> {
  %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %m = stablehlo.reduce(%x init: %low) applies stablehlo.maximum across dimensions = [1] : (tensor<1024x2048xf32>, tensor<f32>) -> tensor<1024xf32>
  %b = stablehlo.broadcast_in_dim %m, dims = [0] : (tensor<1024xf32>) -> tensor<1024x2048xf32>
  %y = stablehlo.subtract %x, %b : tensor<1024x2048xf32>
  return %y : tensor<1024x2048xf32>
}

// CHECK{LITERAL}: kernel kernel_row_0
// CHECK-NEXT{LITERAL}:   argument a0: tensor<1024x2048xf32>
// CHECK-NEXT{LITERAL}:   result o0: tensor<1024x2048xf32>
// CHECK-NEXT{LITERAL}:   reduce_0[GRID_64, THREAD]S;
// CHECK-NEXT{LITERAL}:   subtract_0[GRID_64, THREAD];
// CHECK-NEXT{LITERAL}:   arena: 64 bytes per program, scratch: 0 bytes
// CHECK-NEXT{LITERAL}:   arena t0: tensor<1x1xf32> bytes [0, 4)
// CHECK-NEXT{LITERAL}:   phase 0
// CHECK-NEXT{LITERAL}:     lane: 1024 rows, 1 per step, 64 programs, work 4194304
// CHECK-NEXT{LITERAL}:       stage 0: reduce maximum
// CHECK-NEXT{LITERAL}:         // reduce: -:6
// CHECK-NEXT{LITERAL}:         prefetch lines [0, 64) of a0's 8192 bytes of the next step
// CHECK-NEXT{LITERAL}:         for r in [0, 1):
// CHECK-NEXT{LITERAL}:           acc1 = float32(-inf)
// CHECK-NEXT{LITERAL}:           for i1 in [0, 2048):
// CHECK-NEXT{LITERAL}:             v0 = a0[r * 2048 + i1]
// CHECK-NEXT{LITERAL}:             acc1 = max_reassoc(acc1, v0)
// CHECK-NEXT{LITERAL}:           t0[0] = acc1
// CHECK-NEXT{LITERAL}:       stage 1: subtract
// CHECK-NEXT{LITERAL}:         // broadcast_in_dim: -:7
// CHECK-NEXT{LITERAL}:         // subtract: -:8
// CHECK-NEXT{LITERAL}:         prefetch lines [64, 128) of a0's 8192 bytes of the next step
// CHECK-NEXT{LITERAL}:         v3 = t0[0]
// CHECK-NEXT{LITERAL}:         for r in [0, 1):
// CHECK-NEXT{LITERAL}:           for i1 in [0, 2048):
// CHECK-NEXT{LITERAL}:             v2 = a0[r * 2048 + i1]
// CHECK-NEXT{LITERAL}:             v4 = v2 - v3
// CHECK-NEXT{LITERAL}:             o0[r * 2048 + i1] = v4
