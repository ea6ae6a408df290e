// RUN: jstitch opt %s --passes own_columns | filecheck %s
// Sums of columns: 8 strips of 160 columns, and 11 columns behind them.

func.func @main(%x: tensor<24x1291xf32>) -> tensor<24x1291xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %s = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [0]
    : (tensor<24x1291xf32>, tensor<f32>) -> tensor<1291xf32>
  %b = stablehlo.broadcast_in_dim %s, dims = [1] : (tensor<1291xf32>) -> tensor<24x1291xf32>
  %y = stablehlo.divide %x, %b : tensor<24x1291xf32>
  return %y : tensor<24x1291xf32>
}

// CHECK{LITERAL}: graph(%arg0: tensor<24x1291xf32>) -> (%18) {
// CHECK-NEXT{LITERAL}:   %0 = stablehlo.constant {value = dense<0.0>} : tensor<f32>  // -:5
// CHECK-NEXT{LITERAL}:   %1 = stablehlo.slice %arg0 {start_indices = (0, 0), limit_indices = (24, 1280), strides = (1, 1), apart = True} : tensor<24x1280xf32>
// CHECK-NEXT{LITERAL}:   %2 = stablehlo.reshape %1 {apart = True} : tensor<24x8x160xf32>
// CHECK-NEXT{LITERAL}:   %3 = stablehlo.transpose %2 {permutation = (1, 0, 2), apart = True} : tensor<8x24x160xf32>
// CHECK-NEXT{LITERAL}:   %4 = stablehlo.reduce %3, %0 {dimensions = (1,), monoid = stablehlo.add} : tensor<8x160xf32>  // -:6
// CHECK-NEXT{LITERAL}:     region 0(%arg1: tensor<f32>, %arg2: tensor<f32>) -> (%5) {
// CHECK-NEXT{LITERAL}:       %5 = stablehlo.add %arg1, %arg2 : tensor<f32>  // -:6
// CHECK-NEXT{LITERAL}:     }
// CHECK-NEXT{LITERAL}:   %6 = stablehlo.broadcast_in_dim %4 {broadcast_dimensions = (0, 2)} : tensor<8x24x160xf32>  // -:8
// CHECK-NEXT{LITERAL}:   %7 = stablehlo.divide %3, %6 : tensor<8x24x160xf32>  // -:9
// CHECK-NEXT{LITERAL}:   %8 = stablehlo.slice %arg0 {start_indices = (0, 1280), limit_indices = (24, 1291), strides = (1, 1), apart = True} : tensor<24x11xf32>
// CHECK-NEXT{LITERAL}:   %9 = stablehlo.reshape %8 {apart = True} : tensor<24x1x11xf32>
// CHECK-NEXT{LITERAL}:   %10 = stablehlo.transpose %9 {permutation = (1, 0, 2), apart = True} : tensor<1x24x11xf32>
// CHECK-NEXT{LITERAL}:   %11 = stablehlo.reduce %10, %0 {dimensions = (1,), monoid = stablehlo.add} : tensor<1x11xf32>  // -:6
// CHECK-NEXT{LITERAL}:     region 0(%arg1: tensor<f32>, %arg2: tensor<f32>) -> (%5) {
// CHECK-NEXT{LITERAL}:       %5 = stablehlo.add %arg1, %arg2 : tensor<f32>  // -:6
// CHECK-NEXT{LITERAL}:     }
// CHECK-NEXT{LITERAL}:   %12 = stablehlo.broadcast_in_dim %11 {broadcast_dimensions = (0, 2)} : tensor<1x24x11xf32>  // -:8
// CHECK-NEXT{LITERAL}:   %13 = stablehlo.divide %10, %12 : tensor<1x24x11xf32>  // -:9
// CHECK-NEXT{LITERAL}:   %14 = stablehlo.transpose %7 {permutation = (1, 0, 2)} : tensor<24x8x160xf32>
// CHECK-NEXT{LITERAL}:   %15 = stablehlo.reshape %14 : tensor<24x1280xf32>
// CHECK-NEXT{LITERAL}:   %16 = stablehlo.transpose %13 {permutation = (1, 0, 2)} : tensor<24x1x11xf32>
// CHECK-NEXT{LITERAL}:   %17 = stablehlo.reshape %16 : tensor<24x11xf32>
// CHECK-NEXT{LITERAL}:   %18 = stablehlo.concatenate %15, %17 {dimension = 1} : tensor<24x1291xf32>
// CHECK-NEXT{LITERAL}: }
