// RUN: jstitch opt %s --passes take_components | filecheck %s
// Rows of three: what they sum to is a sum of three values, each of which has as many elements as there are rows.

func.func @main(%x: tensor<6000x3xf32>) -> (tensor<6000x3xf32>, tensor<6000xf32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %r = stablehlo.reverse %x, dims = [1] : tensor<6000x3xf32>
  %y = stablehlo.multiply %x, %r : tensor<6000x3xf32>
  %s = stablehlo.reduce(%y init: %zero) applies stablehlo.add across dimensions = [1]
    : (tensor<6000x3xf32>, tensor<f32>) -> tensor<6000xf32>
  return %y, %s : tensor<6000x3xf32>, tensor<6000xf32>
}

// CHECK{LITERAL}: graph(%arg0: tensor<6000x3xf32>) -> (%17, %13) {
// CHECK-NEXT{LITERAL}:   %0 = stablehlo.constant {value = dense<0.0>} : tensor<f32>  // -:5
// CHECK-NEXT{LITERAL}:   %1 = stablehlo.slice %arg0 {start_indices = (0, 2), limit_indices = (6000, 3), strides = (1, 1), apart = True} : tensor<6000x1xf32>  // -:6
// CHECK-NEXT{LITERAL}:   %2 = stablehlo.reshape %1 {apart = True} : tensor<6000xf32>  // -:6
// CHECK-NEXT{LITERAL}:   %3 = stablehlo.slice %arg0 {start_indices = (0, 1), limit_indices = (6000, 2), strides = (1, 1), apart = True} : tensor<6000x1xf32>  // -:6
// CHECK-NEXT{LITERAL}:   %4 = stablehlo.reshape %3 {apart = True} : tensor<6000xf32>  // -:6
// CHECK-NEXT{LITERAL}:   %5 = stablehlo.slice %arg0 {start_indices = (0, 0), limit_indices = (6000, 1), strides = (1, 1), apart = True} : tensor<6000x1xf32>  // -:6
// CHECK-NEXT{LITERAL}:   %6 = stablehlo.reshape %5 {apart = True} : tensor<6000xf32>  // -:6
// CHECK-NEXT{LITERAL}:   %7 = stablehlo.multiply %6, %2 : tensor<6000xf32>  // -:7
// CHECK-NEXT{LITERAL}:   %8 = stablehlo.multiply %4, %4 : tensor<6000xf32>  // -:7
// CHECK-NEXT{LITERAL}:   %9 = stablehlo.multiply %2, %6 : tensor<6000xf32>  // -:7
// CHECK-NEXT{LITERAL}:   %10 = stablehlo.add %7, %8 : tensor<6000xf32>  // -:8
// CHECK-NEXT{LITERAL}:   %11 = stablehlo.add %10, %9 : tensor<6000xf32>  // -:8
// CHECK-NEXT{LITERAL}:   %12 = stablehlo.broadcast_in_dim %0 {broadcast_dimensions = ()} : tensor<6000xf32>  // -:8
// CHECK-NEXT{LITERAL}:   %13 = stablehlo.add %11, %12 : tensor<6000xf32>  // -:8
// CHECK-NEXT{LITERAL}:   %14 = stablehlo.reshape %7 : tensor<6000x1xf32>  // -:8
// CHECK-NEXT{LITERAL}:   %15 = stablehlo.reshape %8 : tensor<6000x1xf32>  // -:8
// CHECK-NEXT{LITERAL}:   %16 = stablehlo.reshape %9 : tensor<6000x1xf32>  // -:8
// CHECK-NEXT{LITERAL}:   %17 = stablehlo.concatenate %14, %15, %16 {dimension = 1} : tensor<6000x3xf32>  // -:8
// CHECK-NEXT{LITERAL}: }
