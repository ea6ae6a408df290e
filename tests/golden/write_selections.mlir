// RUN: jstitch opt %s --passes write_selections --target cpu | filecheck %s
// The gradient of a pool of two: what the larger element gets.

func.func @main(%x: tensor<64xf32>, %g: tensor<32xf32>) -> tensor<64xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %r = "stablehlo.select_and_scatter"(%x, %g, %zero) <{
    window_dimensions = array<i64: 2>, window_strides = array<i64: 2>, padding = dense<0> : tensor<1x2xi64>
  }> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %c = stablehlo.compare GE, %a, %b, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  }, {
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %c = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %c : tensor<f32>
  }) : (tensor<64xf32>, tensor<32xf32>, tensor<f32>) -> tensor<64xf32>
  func.return %r : tensor<64xf32>
}

// CHECK{LITERAL}: graph(%arg0: tensor<64xf32>, %arg1: tensor<32xf32>) -> (%20) {
// CHECK-NEXT{LITERAL}:   %0 = stablehlo.constant {value = dense<0.0>} : tensor<f32>  // -:5
// CHECK-NEXT{LITERAL}:   %1 = stablehlo.slice %arg0 {start_indices = (0,), limit_indices = (63,), strides = (2,)} : tensor<32xf32>  // -:6
// CHECK-NEXT{LITERAL}:   %2 = stablehlo.slice %arg0 {start_indices = (1,), limit_indices = (64,), strides = (2,)} : tensor<32xf32>  // -:6
// CHECK-NEXT{LITERAL}:   %3 = stablehlo.constant {value = dense<0>} : tensor<32xi32>  // -:6
// CHECK-NEXT{LITERAL}:   %4 = stablehlo.compare %1, %2 {compare_type = FLOAT, comparison_direction = GE} : tensor<32xi1>  // -:10
// CHECK-NEXT{LITERAL}:   %5 = stablehlo.constant {value = dense<1>} : tensor<32xi32>  // -:6
// CHECK-NEXT{LITERAL}:   %6 = stablehlo.select %4, %3, %5 : tensor<32xi32>  // -:6
// CHECK-NEXT{LITERAL}:   %7 = stablehlo.select %4, %1, %2 : tensor<32xf32>  // -:6
// CHECK-NEXT{LITERAL}:   %8 = stablehlo.convert %arg1 : tensor<32xf32>  // -:6
// CHECK-NEXT{LITERAL}:   %9 = stablehlo.constant {value = dense<0.0>} : tensor<32xf32>  // -:6
// CHECK-NEXT{LITERAL}:   %10 = stablehlo.constant {value = dense<0.0>} : tensor<f32>  // -:6
// CHECK-NEXT{LITERAL}:   %11 = stablehlo.constant {value = dense<0>} : tensor<32xi32>  // -:6
// CHECK-NEXT{LITERAL}:   %12 = stablehlo.compare %6, %11 {comparison_direction = EQ} : tensor<32xi1>  // -:6
// CHECK-NEXT{LITERAL}:   %13 = stablehlo.select %12, %8, %9 : tensor<32xf32>  // -:6
// CHECK-NEXT{LITERAL}:   %14 = stablehlo.pad %13, %10 {edge_padding_low = (0,), edge_padding_high = (1,), interior_padding = (1,)} : tensor<64xf32>  // -:6
// CHECK-NEXT{LITERAL}:   %15 = stablehlo.constant {value = dense<1>} : tensor<32xi32>  // -:6
// CHECK-NEXT{LITERAL}:   %16 = stablehlo.compare %6, %15 {comparison_direction = EQ} : tensor<32xi1>  // -:6
// CHECK-NEXT{LITERAL}:   %17 = stablehlo.select %16, %8, %9 : tensor<32xf32>  // -:6
// CHECK-NEXT{LITERAL}:   %18 = stablehlo.pad %17, %10 {edge_padding_low = (1,), edge_padding_high = (0,), interior_padding = (1,)} : tensor<64xf32>  // -:6
// CHECK-NEXT{LITERAL}:   %19 = stablehlo.add %14, %18 {window = 100} : tensor<64xf32>  // -:6
// CHECK-NEXT{LITERAL}:   %20 = stablehlo.convert %19 : tensor<64xf32>  // -:6
// CHECK-NEXT{LITERAL}: }
