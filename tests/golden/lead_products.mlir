// RUN: jstitch opt %s --passes lead_products --target h200 | filecheck %s
// On a GPU: the product comes first in the sum, which the library then adds while it multiplies.

func.func @main(%x: tensor<8x8xf32>, %a: tensor<8x8xf32>, %b: tensor<8x8xf32>) -> tensor<8x8xf32> {
  %p = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]
    : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %s = stablehlo.add %x, %p : tensor<8x8xf32>
  return %s : tensor<8x8xf32>
}

// CHECK{LITERAL}: graph(%arg0: tensor<8x8xf32>, %arg1: tensor<8x8xf32>, %arg2: tensor<8x8xf32>) -> (%1) {
// CHECK-NEXT{LITERAL}:   %0 = stablehlo.dot_general %arg1, %arg2 {lhs_batching_dimensions = (), rhs_batching_dimensions = (), lhs_contracting_dimensions = (1,), rhs_contracting_dimensions = (0,)} : tensor<8x8xf32>  // -:5
// CHECK-NEXT{LITERAL}:   %1 = stablehlo.add %0, %arg0 : tensor<8x8xf32>  // -:7
// CHECK-NEXT{LITERAL}: }
