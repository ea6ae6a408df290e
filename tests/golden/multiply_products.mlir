// RUN: jstitch opt %s --passes multiply_products | filecheck %s
// einsum("bhqk,h->bhqk"): a scale of heads sums nothing up.

func.func @main(%p: tensor<2x3x4x5xf32>, %h: tensor<3xf32>) -> tensor<3x2x4x5xf32> {
  %s = stablehlo.dot_general %p, %h, batching_dims = [1] x [0], contracting_dims = [] x [] : (tensor<2x3x4x5xf32>, tensor<3xf32>) -> tensor<3x2x4x5xf32>
  return %s : tensor<3x2x4x5xf32>
}

// CHECK{LITERAL}: graph(%arg0: tensor<2x3x4x5xf32>, %arg1: tensor<3xf32>) -> (%7) {
// CHECK-NEXT{LITERAL}:   %0 = stablehlo.transpose %arg1 {permutation = (0,)} : tensor<3xf32>  // -:5
// CHECK-NEXT{LITERAL}:   %1 = stablehlo.reshape %0 : tensor<3xf32>  // -:5
// CHECK-NEXT{LITERAL}:   %2 = stablehlo.convert %1 : tensor<3xf32>  // -:5
// CHECK-NEXT{LITERAL}:   %3 = stablehlo.broadcast_in_dim %2 {broadcast_dimensions = (1,)} : tensor<2x3x4x5xf32>  // -:5
// CHECK-NEXT{LITERAL}:   %4 = stablehlo.convert %arg0 : tensor<2x3x4x5xf32>  // -:5
// CHECK-NEXT{LITERAL}:   %5 = stablehlo.multiply %4, %3 : tensor<2x3x4x5xf32>  // -:5
// CHECK-NEXT{LITERAL}:   %6 = stablehlo.transpose %5 {permutation = (1, 0, 2, 3)} : tensor<3x2x4x5xf32>  // -:5
// CHECK-NEXT{LITERAL}:   %7 = stablehlo.reshape %6 : tensor<3x2x4x5xf32>  // -:5
// CHECK-NEXT{LITERAL}: }
