// RUN: jstitch opt %s --passes split_reductions | filecheck %s
// A sum over an outer and a short inner dimension: first the inner one.

func.func @main(%x: tensor<64x32x8xf32>) -> tensor<32xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %y = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [0, 2]
    : (tensor<64x32x8xf32>, tensor<f32>) -> tensor<32xf32>
  return %y : tensor<32xf32>
}

// CHECK{LITERAL}: graph(%arg0: tensor<64x32x8xf32>) -> (%4) {
// CHECK-NEXT{LITERAL}:   %0 = stablehlo.constant {value = dense<0.0>} : tensor<f32>  // -:5
// CHECK-NEXT{LITERAL}:   %1 = stablehlo.constant {value = dense<0.0>} : tensor<f32>
// CHECK-NEXT{LITERAL}:   %2 = stablehlo.reduce %arg0, %1 {dimensions = (0,), monoid = stablehlo.add} : tensor<32x8xf32>  // -:6
// CHECK-NEXT{LITERAL}:     region 0(%arg1: tensor<f32>, %arg2: tensor<f32>) -> (%3) {
// CHECK-NEXT{LITERAL}:       %3 = stablehlo.add %arg1, %arg2 : tensor<f32>  // -:6
// CHECK-NEXT{LITERAL}:     }
// CHECK-NEXT{LITERAL}:   %4 = stablehlo.reduce %2, %0 {dimensions = (1,), monoid = stablehlo.add} : tensor<32xf32>  // -:6
// CHECK-NEXT{LITERAL}:     region 0(%arg1: tensor<f32>, %arg2: tensor<f32>) -> (%3) {
// CHECK-NEXT{LITERAL}:       %3 = stablehlo.add %arg1, %arg2 : tensor<f32>  // -:6
// CHECK-NEXT{LITERAL}:     }
// CHECK-NEXT{LITERAL}: }
