// RUN: jstitch opt %s --passes merge_products --target h200 | filecheck %s
// On a GPU: three products of one operand are one, as in attention's projections.

func.func @main(%x: tensor<16x32xf32>, %q: tensor<32x8xf32>, %k: tensor<32x8xf32>)
    -> (tensor<16x8xf32>, tensor<16x8xf32>) {
  %a = stablehlo.dot_general %x, %q, contracting_dims = [1] x [0]
    : (tensor<16x32xf32>, tensor<32x8xf32>) -> tensor<16x8xf32>
  %b = stablehlo.dot_general %x, %k, contracting_dims = [1] x [0]
    : (tensor<16x32xf32>, tensor<32x8xf32>) -> tensor<16x8xf32>
  return %a, %b : tensor<16x8xf32>, tensor<16x8xf32>
}

// CHECK{LITERAL}: graph(%arg0: tensor<16x32xf32>, %arg1: tensor<32x8xf32>, %arg2: tensor<32x8xf32>) -> (%2, %3) {
// CHECK-NEXT{LITERAL}:   %0 = stablehlo.concatenate %arg1, %arg2 {dimension = 1} : tensor<32x16xf32>  // -:6
// CHECK-NEXT{LITERAL}:   %1 = stablehlo.dot_general %arg0, %0 {lhs_batching_dimensions = (), rhs_batching_dimensions = (), lhs_contracting_dimensions = (1,), rhs_contracting_dimensions = (0,)} : tensor<16x16xf32>  // -:6
// CHECK-NEXT{LITERAL}:   %2 = stablehlo.slice %1 {start_indices = (0, 0), limit_indices = (16, 8), strides = (1, 1)} : tensor<16x8xf32>  // -:6
// CHECK-NEXT{LITERAL}:   %3 = stablehlo.slice %1 {start_indices = (0, 8), limit_indices = (16, 16), strides = (1, 1)} : tensor<16x8xf32>  // -:8
// CHECK-NEXT{LITERAL}: }
