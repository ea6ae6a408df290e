// RUN: jstitch opt %s --passes turn_gradients --target cpu | filecheck %s
// On a CPU: the gradient of a layer of few outputs is multiplied with its long side last, and turned back.

func.func @main(%x: tensor<16x8xf32>, %g: tensor<16x4xf32>) -> tensor<8x4xf32> {
  %p = stablehlo.dot_general %x, %g, contracting_dims = [0] x [0]
    : (tensor<16x8xf32>, tensor<16x4xf32>) -> tensor<8x4xf32>
  %s = stablehlo.add %p, %p : tensor<8x4xf32>
  return %s : tensor<8x4xf32>
}

// CHECK{LITERAL}: graph(%arg0: tensor<16x8xf32>, %arg1: tensor<16x4xf32>) -> (%3) {
// CHECK-NEXT{LITERAL}:   %0 = stablehlo.dot_general %arg1, %arg0 {lhs_batching_dimensions = (), rhs_batching_dimensions = (), lhs_contracting_dimensions = (0,), rhs_contracting_dimensions = (0,)} : tensor<4x8xf32>  // -:5
// CHECK-NEXT{LITERAL}:   %1 = jstitch.turned %0 : tensor<4x8xf32>  // -:5
// CHECK-NEXT{LITERAL}:   %2 = stablehlo.transpose %1 {permutation = (1, 0)} : tensor<8x4xf32>  // -:5
// CHECK-NEXT{LITERAL}:   %3 = stablehlo.add %2, %2 : tensor<8x4xf32>  // -:7
// CHECK-NEXT{LITERAL}: }
