// RUN: jstitch opt %s --passes reduce_products --target h200 | filecheck %s
// On a GPU: a small product of a matrix and a vector is a sum, which kernels can hold.

func.func @main(%m: tensor<2x5x3x4xf32>, %v: tensor<2x3x4xf32>) -> tensor<2x3x5xf32> {
  %p = stablehlo.dot_general %v, %m, batching_dims = [0, 1] x [0, 2], contracting_dims = [2] x [3]
    : (tensor<2x3x4xf32>, tensor<2x5x3x4xf32>) -> tensor<2x3x5xf32>
  return %p : tensor<2x3x5xf32>
}

// CHECK{LITERAL}: graph(%arg0: tensor<2x5x3x4xf32>, %arg1: tensor<2x3x4xf32>) -> (%8) {
// CHECK-NEXT{LITERAL}:   %0 = stablehlo.transpose %arg1 {permutation = (0, 1, 2)} : tensor<2x3x4xf32>  // -:5
// CHECK-NEXT{LITERAL}:   %1 = stablehlo.reshape %0 : tensor<2x3x4xf32>  // -:5
// CHECK-NEXT{LITERAL}:   %2 = stablehlo.broadcast_in_dim %1 {broadcast_dimensions = (0, 2, 3)} : tensor<2x5x3x4xf32>  // -:5
// CHECK-NEXT{LITERAL}:   %3 = stablehlo.multiply %arg0, %2 : tensor<2x5x3x4xf32>  // -:5
// CHECK-NEXT{LITERAL}:   %4 = stablehlo.constant {value = dense<0.0>} : tensor<f32>  // -:5
// CHECK-NEXT{LITERAL}:   %5 = stablehlo.reduce %3, %4 {dimensions = (3,), monoid = stablehlo.add} : tensor<2x5x3xf32>  // -:5
// CHECK-NEXT{LITERAL}:     region 0(%arg2: tensor<f32>, %arg3: tensor<f32>) -> (%6) {
// CHECK-NEXT{LITERAL}:       %6 = stablehlo.add %arg2, %arg3 : tensor<f32>
// CHECK-NEXT{LITERAL}:     }
// CHECK-NEXT{LITERAL}:   %7 = stablehlo.transpose %5 {permutation = (0, 2, 1)} : tensor<2x3x5xf32>  // -:5
// CHECK-NEXT{LITERAL}:   %8 = stablehlo.reshape %7 : tensor<2x3x5xf32>  // -:5
// CHECK-NEXT{LITERAL}: }
