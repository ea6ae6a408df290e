// RUN: jstitch opt %s --passes swap_products | filecheck %s
// The gradient of a layer's weights: the product comes out as it is wanted, and nothing is transposed.

func.func @main(%x: tensor<16x8xf32>, %g: tensor<16x4xf32>) -> tensor<8x4xf32> {
  %p = stablehlo.dot_general %g, %x, contracting_dims = [0] x [0]
    : (tensor<16x4xf32>, tensor<16x8xf32>) -> tensor<4x8xf32>
  %t = stablehlo.transpose %p, dims = [1, 0] : (tensor<4x8xf32>) -> tensor<8x4xf32>
  %s = stablehlo.add %t, %t : tensor<8x4xf32>
  return %s : tensor<8x4xf32>
}

// CHECK{LITERAL}: graph(%arg0: tensor<16x8xf32>, %arg1: tensor<16x4xf32>) -> (%2) {
// CHECK-NEXT{LITERAL}:   %0 = stablehlo.dot_general %arg1, %arg0 {lhs_batching_dimensions = (), rhs_batching_dimensions = (), lhs_contracting_dimensions = (0,), rhs_contracting_dimensions = (0,)} : tensor<4x8xf32>  // -:5
// CHECK-NEXT{LITERAL}:   %1 = stablehlo.dot_general %arg0, %arg1 {lhs_batching_dimensions = (), rhs_batching_dimensions = (), lhs_contracting_dimensions = (0,), rhs_contracting_dimensions = (0,)} : tensor<8x4xf32>  // -:5
// CHECK-NEXT{LITERAL}:   %2 = stablehlo.add %1, %1 : tensor<8x4xf32>  // -:8
// CHECK-NEXT{LITERAL}: }
