// RUN: jstitch opt %s --passes write_taps --target cpu | filecheck %s
// A depthwise convolution of a sequence: three terms for each element.

func.func @main(%x: tensor<2x64x8xf32>, %k: tensor<3x1x8xf32>) -> tensor<2x64x8xf32> {
  %r = stablehlo.convolution(%x, %k)
    dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f],
    window = {pad = [[2, 0]]}
    {feature_group_count = 8 : i64, batch_group_count = 1 : i64}
    : (tensor<2x64x8xf32>, tensor<3x1x8xf32>) -> tensor<2x64x8xf32>
  func.return %r : tensor<2x64x8xf32>
}

// CHECK{LITERAL}: graph(%arg0: tensor<2x64x8xf32>, %arg1: tensor<3x1x8xf32>) -> (%23) {
// CHECK-NEXT{LITERAL}:   %0 = stablehlo.convert %arg0 : tensor<2x64x8xf32>  // -:5
// CHECK-NEXT{LITERAL}:   %1 = stablehlo.transpose %0 {permutation = (0, 1, 2)} : tensor<2x64x8xf32>  // -:5
// CHECK-NEXT{LITERAL}:   %2 = stablehlo.constant {value = dense<0.0>} : tensor<f32>  // -:5
// CHECK-NEXT{LITERAL}:   %3 = stablehlo.pad %1, %2 {edge_padding_low = (0, 2, 0), edge_padding_high = (0, 0, 0), interior_padding = (0, 0, 0)} : tensor<2x66x8xf32>  // -:5
// CHECK-NEXT{LITERAL}:   %4 = stablehlo.convert %arg1 : tensor<3x1x8xf32>  // -:5
// CHECK-NEXT{LITERAL}:   %5 = stablehlo.slice %3 {start_indices = (0, 0, 0), limit_indices = (2, 66, 8), strides = (1, 1, 1)} : tensor<2x66x8xf32>  // -:5
// CHECK-NEXT{LITERAL}:   %6 = stablehlo.slice %5 {start_indices = (0, 0, 0), limit_indices = (2, 64, 8), strides = (1, 1, 1)} : tensor<2x64x8xf32>  // -:5
// CHECK-NEXT{LITERAL}:   %7 = stablehlo.slice %4 {start_indices = (0, 0, 0), limit_indices = (1, 1, 8), strides = (1, 1, 1)} : tensor<1x1x8xf32>  // -:5
// CHECK-NEXT{LITERAL}:   %8 = stablehlo.reshape %7 : tensor<8xf32>  // -:5
// CHECK-NEXT{LITERAL}:   %9 = stablehlo.broadcast_in_dim %8 {broadcast_dimensions = (2,)} : tensor<2x64x8xf32>  // -:5
// CHECK-NEXT{LITERAL}:   %10 = stablehlo.multiply %6, %9 : tensor<2x64x8xf32>  // -:5
// CHECK-NEXT{LITERAL}:   %11 = stablehlo.slice %5 {start_indices = (0, 1, 0), limit_indices = (2, 65, 8), strides = (1, 1, 1)} : tensor<2x64x8xf32>  // -:5
// CHECK-NEXT{LITERAL}:   %12 = stablehlo.slice %4 {start_indices = (1, 0, 0), limit_indices = (2, 1, 8), strides = (1, 1, 1)} : tensor<1x1x8xf32>  // -:5
// CHECK-NEXT{LITERAL}:   %13 = stablehlo.reshape %12 : tensor<8xf32>  // -:5
// CHECK-NEXT{LITERAL}:   %14 = stablehlo.broadcast_in_dim %13 {broadcast_dimensions = (2,)} : tensor<2x64x8xf32>  // -:5
// CHECK-NEXT{LITERAL}:   %15 = stablehlo.multiply %11, %14 : tensor<2x64x8xf32>  // -:5
// CHECK-NEXT{LITERAL}:   %16 = stablehlo.slice %5 {start_indices = (0, 2, 0), limit_indices = (2, 66, 8), strides = (1, 1, 1)} : tensor<2x64x8xf32>  // -:5
// CHECK-NEXT{LITERAL}:   %17 = stablehlo.slice %4 {start_indices = (2, 0, 0), limit_indices = (3, 1, 8), strides = (1, 1, 1)} : tensor<1x1x8xf32>  // -:5
// CHECK-NEXT{LITERAL}:   %18 = stablehlo.reshape %17 : tensor<8xf32>  // -:5
// CHECK-NEXT{LITERAL}:   %19 = stablehlo.broadcast_in_dim %18 {broadcast_dimensions = (2,)} : tensor<2x64x8xf32>  // -:5
// CHECK-NEXT{LITERAL}:   %20 = stablehlo.multiply %16, %19 : tensor<2x64x8xf32>  // -:5
// CHECK-NEXT{LITERAL}:   %21 = stablehlo.add %10, %15 : tensor<2x64x8xf32>  // -:5
// CHECK-NEXT{LITERAL}:   %22 = stablehlo.add %21, %20 {window = 105} : tensor<2x64x8xf32>  // -:5
// CHECK-NEXT{LITERAL}:   %23 = stablehlo.convert %22 : tensor<2x64x8xf32>  // -:5
// CHECK-NEXT{LITERAL}: }
