// RUN: jstitch opt %s --passes divide_windows --target cpu | filecheck %s
// A box filter: 14 additions for each element instead of 49.

func.func @main(%x: tensor<64x64xf32>) -> tensor<64x64xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %r = "stablehlo.reduce_window"(%x, %zero) <{
    window_dimensions = array<i64: 7, 7>, padding = dense<3> : tensor<2x2xi64>
  }> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %s = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %s : tensor<f32>
  }) : (tensor<64x64xf32>, tensor<f32>) -> tensor<64x64xf32>
  func.return %r : tensor<64x64xf32>
}

// CHECK{LITERAL}: graph(%arg0: tensor<64x64xf32>) -> (%3) {
// CHECK-NEXT{LITERAL}:   %0 = stablehlo.constant {value = dense<0.0>} : tensor<f32>  // -:5
// CHECK-NEXT{LITERAL}:   %1 = stablehlo.reduce_window %arg0, %0 {monoid = stablehlo.add, window_dimensions = (7, 1), padding = ((3, 3), (0, 0))} : tensor<64x64xf32>  // -:6
// CHECK-NEXT{LITERAL}:     region 0(%arg1: tensor<f32>, %arg2: tensor<f32>) -> (%2) {
// CHECK-NEXT{LITERAL}:       %2 = stablehlo.add %arg1, %arg2 : tensor<f32>  // -:10
// CHECK-NEXT{LITERAL}:     }
// CHECK-NEXT{LITERAL}:   %3 = stablehlo.reduce_window %1, %0 {monoid = stablehlo.add, window_dimensions = (1, 7), padding = ((0, 0), (3, 3))} : tensor<64x64xf32>  // -:6
// CHECK-NEXT{LITERAL}:     region 0(%arg1: tensor<f32>, %arg2: tensor<f32>) -> (%2) {
// CHECK-NEXT{LITERAL}:       %2 = stablehlo.add %arg1, %arg2 : tensor<f32>  // -:10
// CHECK-NEXT{LITERAL}:     }
// CHECK-NEXT{LITERAL}: }
