// RUN: jstitch opt %s --passes plan_dp | filecheck %s
// Dynamic programming's choice around a contraction.

func.func @main(%x: tensor<64x512xf32>, %w: tensor<512x512xf32>) -> tensor<64x512xf32> {
  %a = stablehlo.tanh %x : tensor<64x512xf32>
  %b = stablehlo.multiply %a, %x : tensor<64x512xf32>
  %p = stablehlo.dot_general %b, %w, contracting_dims = [1] x [0]
    : (tensor<64x512xf32>, tensor<512x512xf32>) -> tensor<64x512xf32>
  %c = stablehlo.add %p, %x : tensor<64x512xf32>
  %d = stablehlo.logistic %c : tensor<64x512xf32>
  %y = stablehlo.multiply %c, %d : tensor<64x512xf32>
  return %y : tensor<64x512xf32>
}

// CHECK{LITERAL}: frame 0
// CHECK-NEXT{LITERAL}: pattern 0 (explore_patterns): 2 ops, 1 inputs, 1 outputs
// CHECK-NEXT{LITERAL}:   inputs   %arg0: tensor<64x512xf32>
// CHECK-NEXT{LITERAL}:   %0 = stablehlo.tanh %arg0 : tensor<64x512xf32>  // -:5
// CHECK-NEXT{LITERAL}:   %1 = stablehlo.multiply %0, %arg0 : tensor<64x512xf32>  // -:6
// CHECK-NEXT{LITERAL}:   outputs  %1
// CHECK-NEXT{LITERAL}: pattern 1 (explore_patterns): 3 ops, 2 inputs, 1 outputs
// CHECK-NEXT{LITERAL}:   inputs   %2: tensor<64x512xf32>, %arg0: tensor<64x512xf32>
// CHECK-NEXT{LITERAL}:   %3 = stablehlo.add %2, %arg0 : tensor<64x512xf32>  // -:9
// CHECK-NEXT{LITERAL}:   %4 = stablehlo.logistic %3 : tensor<64x512xf32>  // -:10
// CHECK-NEXT{LITERAL}:   %5 = stablehlo.multiply %3, %4 : tensor<64x512xf32>  // -:11
// CHECK-NEXT{LITERAL}:   outputs  %5
// CHECK-NEXT{LITERAL}: not fused
// CHECK-NEXT{LITERAL}:   %1 stablehlo.multiply -> %2 stablehlo.dot_general    gate: modelled 308.18 us (4.59 MB), and must be less than 266.41 us, 0.95 of XLA's 280.44 us (1.70 MB, 2 kernels)
// CHECK-NEXT{LITERAL}:   %2 stablehlo.dot_general -> %3 stablehlo.add    gate: modelled 308.18 us (4.59 MB), and must be less than 266.41 us, 0.95 of XLA's 280.44 us (1.70 MB, 2 kernels)
