// RUN: jstitch opt %s --passes unroll_windows | filecheck %s
// A max pooling of windows of three with padding becomes three slices.

func.func @main(%x: tensor<8xf32>) -> tensor<4xf32> {
  %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %y = "stablehlo.reduce_window"(%x, %low) ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %m = stablehlo.maximum %a, %b : tensor<f32>
    stablehlo.return %m : tensor<f32>
  }) {window_dimensions = array<i64: 3>, window_strides = array<i64: 2>, padding = dense<[[1, 0]]> : tensor<1x2xi64>}
    : (tensor<8xf32>, tensor<f32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}

// CHECK{LITERAL}: graph(%arg0: tensor<8xf32>) -> (%8) {
// CHECK-NEXT{LITERAL}:   %0 = stablehlo.constant {value = dense<-inf>} : tensor<f32>  // -:5
// CHECK-NEXT{LITERAL}:   %1 = stablehlo.pad %arg0, %0 {edge_padding_low = (1,), edge_padding_high = (0,), interior_padding = (0,)} : tensor<9xf32>  // -:6
// CHECK-NEXT{LITERAL}:   %2 = stablehlo.slice %1 {start_indices = (0,), limit_indices = (7,), strides = (2,)} : tensor<4xf32>  // -:6
// CHECK-NEXT{LITERAL}:   %3 = stablehlo.slice %1 {start_indices = (1,), limit_indices = (8,), strides = (2,)} : tensor<4xf32>  // -:6
// CHECK-NEXT{LITERAL}:   %4 = stablehlo.slice %1 {start_indices = (2,), limit_indices = (9,), strides = (2,)} : tensor<4xf32>  // -:6
// CHECK-NEXT{LITERAL}:   %5 = stablehlo.broadcast_in_dim %0 {broadcast_dimensions = ()} : tensor<4xf32>  // -:6
// CHECK-NEXT{LITERAL}:   %6 = stablehlo.maximum %2, %3 : tensor<4xf32>  // -:6
// CHECK-NEXT{LITERAL}:   %7 = stablehlo.maximum %6, %4 {window = 3} : tensor<4xf32>  // -:6
// CHECK-NEXT{LITERAL}:   %8 = stablehlo.maximum %5, %7 : tensor<4xf32>  // -:6
// CHECK-NEXT{LITERAL}: }
