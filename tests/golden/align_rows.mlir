// RUN: jstitch opt %s --passes align_rows | filecheck %s
// Two heads share keys; their scores are read with the heads first.

func.func @main(%q: tensor<5x2x3xf32>, %k: tensor<4x3xf32>, %v: tensor<4x3xf32>) -> tensor<2x5x3xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %s = stablehlo.dot_general %q, %k, contracting_dims = [2] x [1] : (tensor<5x2x3xf32>, tensor<4x3xf32>) -> tensor<5x2x4xf32>
  %t = stablehlo.transpose %s, dims = [1, 0, 2] : (tensor<5x2x4xf32>) -> tensor<2x5x4xf32>
  %sum = stablehlo.reduce(%t init: %zero) applies stablehlo.add across dimensions = [2] : (tensor<2x5x4xf32>, tensor<f32>) -> tensor<2x5xf32>
  %row = stablehlo.broadcast_in_dim %sum, dims = [0, 1] : (tensor<2x5xf32>) -> tensor<2x5x4xf32>
  %p = stablehlo.divide %t, %row : tensor<2x5x4xf32>
  %o = stablehlo.dot_general %p, %v, contracting_dims = [2] x [0] : (tensor<2x5x4xf32>, tensor<4x3xf32>) -> tensor<2x5x3xf32>
  return %o : tensor<2x5x3xf32>
}

// CHECK{LITERAL}: graph(%arg0: tensor<5x2x3xf32>, %arg1: tensor<4x3xf32>, %arg2: tensor<4x3xf32>) -> (%9) {
// CHECK-NEXT{LITERAL}:   %0 = stablehlo.constant {value = dense<0.0>} : tensor<f32>  // -:5
// CHECK-NEXT{LITERAL}:   %1 = stablehlo.transpose %arg0 {permutation = (1, 0, 2)} : tensor<2x5x3xf32>  // -:6
// CHECK-NEXT{LITERAL}:   %2 = stablehlo.transpose %arg1 {permutation = (0, 1)} : tensor<4x3xf32>  // -:6
// CHECK-NEXT{LITERAL}:   %3 = stablehlo.dot_general %1, %2 {lhs_batching_dimensions = (), rhs_batching_dimensions = (), lhs_contracting_dimensions = (2,), rhs_contracting_dimensions = (1,)} : tensor<2x5x4xf32>  // -:6
// CHECK-NEXT{LITERAL}:   %4 = stablehlo.reduce %3, %0 {dimensions = (2,), monoid = stablehlo.add} : tensor<2x5xf32>  // -:8
// CHECK-NEXT{LITERAL}:     region 0(%arg3: tensor<f32>, %arg4: tensor<f32>) -> (%5) {
// CHECK-NEXT{LITERAL}:       %5 = stablehlo.add %arg3, %arg4 : tensor<f32>  // -:8
// CHECK-NEXT{LITERAL}:     }
// CHECK-NEXT{LITERAL}:   %6 = stablehlo.broadcast_in_dim %4 {broadcast_dimensions = (0, 1)} : tensor<2x5x4xf32>  // -:9
// CHECK-NEXT{LITERAL}:   %7 = stablehlo.divide %3, %6 : tensor<2x5x4xf32>  // -:10
// CHECK-NEXT{LITERAL}:   %8 = stablehlo.dot_general %7, %arg2 {lhs_batching_dimensions = (), rhs_batching_dimensions = (), lhs_contracting_dimensions = (2,), rhs_contracting_dimensions = (0,)} : tensor<2x5x3xf32>  // -:11
// CHECK-NEXT{LITERAL}:   %9 = stablehlo.transpose %8 {permutation = (0, 1, 2)} : tensor<2x5x3xf32>  // -:11
// CHECK-NEXT{LITERAL}: }
