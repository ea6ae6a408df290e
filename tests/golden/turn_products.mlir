// RUN: jstitch opt %s --passes turn_products --target h200 | filecheck %s
// On a GPU: the transposition that XLA makes for a batched product, where a kernel makes the operand.

func.func @main(%x: tensor<2x16x4x8xf32>, %y: tensor<2x16x4x8xf32>) -> tensor<2x4x16x16xf32> {
  %a = stablehlo.tanh %x : tensor<2x16x4x8xf32>
  %p = stablehlo.dot_general %a, %y, batching_dims = [0, 2] x [0, 2], contracting_dims = [3] x [3]
    : (tensor<2x16x4x8xf32>, tensor<2x16x4x8xf32>) -> tensor<2x4x16x16xf32>
  return %p : tensor<2x4x16x16xf32>
}

// CHECK{LITERAL}: graph(%arg0: tensor<2x16x4x8xf32>, %arg1: tensor<2x16x4x8xf32>) -> (%2) {
// CHECK-NEXT{LITERAL}:   %0 = stablehlo.tanh %arg0 : tensor<2x16x4x8xf32>  // -:5
// CHECK-NEXT{LITERAL}:   %1 = stablehlo.transpose %0 {permutation = (0, 2, 1, 3)} : tensor<2x4x16x8xf32>  // -:6
// CHECK-NEXT{LITERAL}:   %2 = stablehlo.dot_general %1, %arg1 {lhs_batching_dimensions = (0, 1), rhs_batching_dimensions = (0, 2), lhs_contracting_dimensions = (3,), rhs_contracting_dimensions = (3,)} : tensor<2x4x16x16xf32>  // -:6
// CHECK-NEXT{LITERAL}: }
