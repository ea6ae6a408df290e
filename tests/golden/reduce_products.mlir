// RUN: jstitch opt %s --passes reduce_products --target h200 | filecheck %s
// On a GPU: a small product of a matrix and a vector is a sum, which kernels can hold.

func.func @main(%m: tensor<2x5x3x4xf32>, %v: tensor<2x3x4xf32>) -> tensor<2x3x5xf32> {
  %p = stablehlo.dot_general %v, %m, batching_dims = [0, 1] x [0, 2], contracting_dims = [2] x [3]
    : (tensor<2x3x4xf32>, tensor<2x5x3x4xf32>) -> tensor<2x3x5xf32>
  return %p : tensor<2x3x5xf32>
}

// CHECK{LITERAL}: graph(%arg0: tensor<2x5x3x4xf32>, %arg1: tensor<2x3x4xf32>) -> (%13) {
// CHECK-NEXT{LITERAL}:   %0 = stablehlo.convert %arg0 : tensor<2x5x3x4xf32>  // -:5
// CHECK-NEXT{LITERAL}:   %1 = stablehlo.convert %arg1 : tensor<2x3x4xf32>  // -:5
// CHECK-NEXT{LITERAL}:   %2 = stablehlo.broadcast_in_dim %0 {broadcast_dimensions = (0, 1, 2, 3)} : tensor<2x5x3x4xf32>  // -:5
// CHECK-NEXT{LITERAL}:   %3 = stablehlo.transpose %1 {permutation = (0, 1, 2)} : tensor<2x3x4xf32>  // -:5
// CHECK-NEXT{LITERAL}:   %4 = stablehlo.reshape %3 : tensor<2x3x4xf32>  // -:5
// CHECK-NEXT{LITERAL}:   %5 = stablehlo.transpose %4 {permutation = (0, 1, 2)} : tensor<2x3x4xf32>  // -:5
// CHECK-NEXT{LITERAL}:   %6 = stablehlo.broadcast_in_dim %5 {broadcast_dimensions = (0, 2, 3)} : tensor<2x5x3x4xf32>  // -:5
// CHECK-NEXT{LITERAL}:   %7 = stablehlo.multiply %2, %6 : tensor<2x5x3x4xf32>  // -:5
// CHECK-NEXT{LITERAL}:   %8 = stablehlo.constant {value = dense<0.0>} : tensor<f32>  // -:5
// CHECK-NEXT{LITERAL}:   %9 = stablehlo.reduce %7, %8 {dimensions = (3,), monoid = stablehlo.add} : tensor<2x5x3xf32>  // -:5
// CHECK-NEXT{LITERAL}:     region 0(%arg2: tensor<f32>, %arg3: tensor<f32>) -> (%10) {
// CHECK-NEXT{LITERAL}:       %10 = stablehlo.add %arg2, %arg3 : tensor<f32>  // -:5
// CHECK-NEXT{LITERAL}:     }
// CHECK-NEXT{LITERAL}:   %11 = stablehlo.transpose %9 {permutation = (0, 2, 1)} : tensor<2x3x5xf32>  // -:5
// CHECK-NEXT{LITERAL}:   %12 = stablehlo.reshape %11 : tensor<2x3x5xf32>  // -:5
// CHECK-NEXT{LITERAL}:   %13 = stablehlo.convert %12 : tensor<2x3x5xf32>  // -:5
// CHECK-NEXT{LITERAL}: }
