// RUN: jstitch opt %s --passes fold_transposes | filecheck %s
// A product reads the rows that it multiplies by as they lie; they are not written as columns first.

func.func @main(%x: tensor<4x8xf32>, %y: tensor<16x8xf32>) -> tensor<4x16xf32> {
  %e = stablehlo.tanh %y : tensor<16x8xf32>
  %t = stablehlo.transpose %e, dims = [1, 0] : (tensor<16x8xf32>) -> tensor<8x16xf32>
  %p = stablehlo.dot_general %x, %t, contracting_dims = [1] x [0]
    : (tensor<4x8xf32>, tensor<8x16xf32>) -> tensor<4x16xf32>
  return %p : tensor<4x16xf32>
}

// CHECK{LITERAL}: graph(%arg0: tensor<4x8xf32>, %arg1: tensor<16x8xf32>) -> (%2) {
// CHECK-NEXT{LITERAL}:   %0 = stablehlo.tanh %arg1 : tensor<16x8xf32>  // -:5
// CHECK-NEXT{LITERAL}:   %1 = stablehlo.transpose %0 {permutation = (1, 0)} : tensor<8x16xf32>  // -:6
// CHECK-NEXT{LITERAL}:   %2 = stablehlo.dot_general %arg0, %0 {lhs_batching_dimensions = (), rhs_batching_dimensions = (), lhs_contracting_dimensions = (1,), rhs_contracting_dimensions = (1,)} : tensor<4x16xf32>  // -:7
// CHECK-NEXT{LITERAL}: }
