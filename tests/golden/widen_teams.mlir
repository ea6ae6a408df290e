// RUN: jstitch opt %s --passes plan_layers,widen_teams --emit kernels --target h200 --tune off | filecheck %s
// Eight rows: with the fewest threads that hold one, all of them would be in a CTA.

func.func @main(%x: tensor<8x512xf32>, %low: tensor<f32>) -> tensor<8x512xf32> {
  %m = stablehlo.reduce(%x init: %low) applies stablehlo.maximum across dimensions = [1]
    : (tensor<8x512xf32>, tensor<f32>) -> tensor<8xf32>
  %b = stablehlo.broadcast_in_dim %m, dims = [0] : (tensor<8xf32>) -> tensor<8x512xf32>
  %y = stablehlo.subtract %x, %b : tensor<8x512xf32>
  %e = stablehlo.exponential %y : tensor<8x512xf32>
  return %e : tensor<8x512xf32>
}

// CHECK{LITERAL}: kernel kernel_row_0
// CHECK-NEXT{LITERAL}:   argument a0: tensor<8x512xf32>
// CHECK-NEXT{LITERAL}:   argument a1: tensor<f32>
// CHECK-NEXT{LITERAL}:   result o0: tensor<8x512xf32>
// CHECK-NEXT{LITERAL}:   reduce_0[GRID, CTA]S;
// CHECK-NEXT{LITERAL}:   exponential_0[GRID, CTA];
// CHECK-NEXT{LITERAL}:   arena: 64 bytes per program, scratch: 0 bytes
// CHECK-NEXT{LITERAL}:   arena t0: tensor<1x1xf32> bytes [0, 4)
// CHECK-NEXT{LITERAL}:   phase 0
// CHECK-NEXT{LITERAL}:     lane: 8 rows, 1 per step, 1 programs, 1024 threads a row, work 36864
// CHECK-NEXT{LITERAL}:       stage 0: reduce maximum
// CHECK-NEXT{LITERAL}:         // reduce: -:5
// CHECK-NEXT{LITERAL}:         v2 = a1[0]
// CHECK-NEXT{LITERAL}:         for r in [0, 1):
// CHECK-NEXT{LITERAL}:           acc1 = v2
// CHECK-NEXT{LITERAL}:           for i1 in [0, 512):
// CHECK-NEXT{LITERAL}:             v0 = a0[r * 512 + i1]
// CHECK-NEXT{LITERAL}:             acc1 = max_reassoc(acc1, v0)
// CHECK-NEXT{LITERAL}:           t0[0] = acc1
// CHECK-NEXT{LITERAL}:       stage 1: exponential
// CHECK-NEXT{LITERAL}:         // broadcast_in_dim: -:7
// CHECK-NEXT{LITERAL}:         // subtract: -:8
// CHECK-NEXT{LITERAL}:         // exponential: -:9
// CHECK-NEXT{LITERAL}:         v4 = t0[0]
// CHECK-NEXT{LITERAL}:         for r in [0, 1):
// CHECK-NEXT{LITERAL}:           for i1 in [0, 512):
// CHECK-NEXT{LITERAL}:             v3 = a0[r * 512 + i1]
// CHECK-NEXT{LITERAL}:             v5 = v3 - v4
// CHECK-NEXT{LITERAL}:             v6 = exp(v5)
// CHECK-NEXT{LITERAL}:             o0[r * 512 + i1] = v6
