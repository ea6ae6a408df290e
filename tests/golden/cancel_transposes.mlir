// RUN: jstitch opt %s --passes cancel_transposes | filecheck %s
// Rows of channels that lie first in memory, less their means, written with transposes around them.

func.func @main(%x: tensor<2x6x5xf32>) -> tensor<2x6x5xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %six = stablehlo.constant dense<6.0> : tensor<2x5xf32>
  %t = stablehlo.transpose %x, dims = [0, 2, 1] : (tensor<2x6x5xf32>) -> tensor<2x5x6xf32>
  %sum = stablehlo.reduce(%t init: %zero) applies stablehlo.add across dimensions = [2] : (tensor<2x5x6xf32>, tensor<f32>) -> tensor<2x5xf32>
  %mean = stablehlo.divide %sum, %six : tensor<2x5xf32>
  %rows = stablehlo.broadcast_in_dim %mean, dims = [0, 1] : (tensor<2x5xf32>) -> tensor<2x5x6xf32>
  %d = stablehlo.subtract %t, %rows : tensor<2x5x6xf32>
  %y = stablehlo.transpose %d, dims = [0, 2, 1] : (tensor<2x5x6xf32>) -> tensor<2x6x5xf32>
  return %y : tensor<2x6x5xf32>
}

// CHECK{LITERAL}: graph(%arg0: tensor<2x6x5xf32>) -> (%11) {
// CHECK-NEXT{LITERAL}:   %0 = stablehlo.constant {value = dense<0.0>} : tensor<f32>  // -:5
// CHECK-NEXT{LITERAL}:   %1 = stablehlo.constant {value = dense<6.0>} : tensor<2x5xf32>  // -:6
// CHECK-NEXT{LITERAL}:   %2 = stablehlo.transpose %arg0 {permutation = (0, 2, 1)} : tensor<2x5x6xf32>  // -:7
// CHECK-NEXT{LITERAL}:   %3 = stablehlo.transpose %2 {permutation = (0, 2, 1)} : tensor<2x6x5xf32>  // -:8
// CHECK-NEXT{LITERAL}:   %4 = stablehlo.reduce %3, %0 {dimensions = (1,), monoid = stablehlo.add} : tensor<2x5xf32>  // -:8
// CHECK-NEXT{LITERAL}:     region 0(%arg1: tensor<f32>, %arg2: tensor<f32>) -> (%5) {
// CHECK-NEXT{LITERAL}:       %5 = stablehlo.add %arg1, %arg2 : tensor<f32>  // -:8
// CHECK-NEXT{LITERAL}:     }
// CHECK-NEXT{LITERAL}:   %6 = stablehlo.divide %4, %1 : tensor<2x5xf32>  // -:9
// CHECK-NEXT{LITERAL}:   %7 = stablehlo.reshape %6 : tensor<2x5xf32>  // -:10
// CHECK-NEXT{LITERAL}:   %8 = stablehlo.broadcast_in_dim %7 {broadcast_dimensions = (0, 2)} : tensor<2x6x5xf32>  // -:10
// CHECK-NEXT{LITERAL}:   %9 = stablehlo.subtract %3, %8 : tensor<2x6x5xf32>  // -:11
// CHECK-NEXT{LITERAL}:   %10 = stablehlo.transpose %9 {permutation = (0, 2, 1)} : tensor<2x5x6xf32>  // -:8
// CHECK-NEXT{LITERAL}:   %11 = stablehlo.transpose %10 {permutation = (0, 2, 1)} : tensor<2x6x5xf32>  // -:12
// CHECK-NEXT{LITERAL}: }
