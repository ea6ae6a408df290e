// RUN: jstitch opt %s --passes widen_columns | filecheck %s
// A part of the rows' number goes to the columns, of which there are ten.

func.func @main(%x: tensor<6000x10xf32>, %b: tensor<10xf32>) -> (tensor<6000x10xf32>, tensor<10xf32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %bias = stablehlo.broadcast_in_dim %b, dims = [1] : (tensor<10xf32>) -> tensor<6000x10xf32>
  %y = stablehlo.add %x, %bias : tensor<6000x10xf32>
  %s = stablehlo.reduce(%y init: %zero) applies stablehlo.add across dimensions = [0]
    : (tensor<6000x10xf32>, tensor<f32>) -> tensor<10xf32>
  return %y, %s : tensor<6000x10xf32>, tensor<10xf32>
}

// CHECK{LITERAL}: graph(%arg0: tensor<6000x10xf32>, %arg1: tensor<10xf32>) -> (%7, %4) {
// CHECK-NEXT{LITERAL}:   %0 = stablehlo.constant {value = dense<0.0>} : tensor<f32>  // -:5
// CHECK-NEXT{LITERAL}:   %1 = stablehlo.broadcast_in_dim %arg1 {broadcast_dimensions = (2,)} : tensor<750x8x10xf32>  // -:6
// CHECK-NEXT{LITERAL}:   %2 = stablehlo.reshape %arg0 {apart = True} : tensor<750x8x10xf32>
// CHECK-NEXT{LITERAL}:   %3 = stablehlo.add %2, %1 : tensor<750x8x10xf32>  // -:7
// CHECK-NEXT{LITERAL}:   %4 = stablehlo.reduce %3, %0 {dimensions = (0, 1), monoid = stablehlo.add} : tensor<10xf32>  // -:8
// CHECK-NEXT{LITERAL}:     region 0(%arg2: tensor<f32>, %arg3: tensor<f32>) -> (%5) {
// CHECK-NEXT{LITERAL}:       %5 = stablehlo.add %arg2, %arg3 : tensor<f32>  // -:8
// CHECK-NEXT{LITERAL}:     }
// CHECK-NEXT{LITERAL}:   %6 = stablehlo.transpose %3 {permutation = (0, 1, 2)} : tensor<750x8x10xf32>
// CHECK-NEXT{LITERAL}:   %7 = stablehlo.reshape %6 : tensor<6000x10xf32>
// CHECK-NEXT{LITERAL}: }
