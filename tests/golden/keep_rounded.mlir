// RUN: jstitch opt %s --passes keep_rounded | filecheck %s
// The first product is known to the maximum, and the difference must be 0 where they are the same. Of the second only
// a sum is made.

func.func @main(%x: tensor<4x8xf32>, %y: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %lowest = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %z = stablehlo.multiply %x, %y : tensor<4x8xf32>
  %m = stablehlo.reduce(%z init: %lowest) applies stablehlo.maximum across dimensions = [1]
    : (tensor<4x8xf32>, tensor<f32>) -> tensor<4xf32>
  %b = stablehlo.broadcast_in_dim %m, dims = [0] : (tensor<4xf32>) -> tensor<4x8xf32>
  %d = stablehlo.subtract %z, %b : tensor<4x8xf32>
  %w = stablehlo.multiply %d, %y : tensor<4x8xf32>
  %r = stablehlo.add %w, %x : tensor<4x8xf32>
  return %r : tensor<4x8xf32>
}

// CHECK{LITERAL}: graph(%arg0: tensor<4x8xf32>, %arg1: tensor<4x8xf32>) -> (%7) {
// CHECK-NEXT{LITERAL}:   %0 = stablehlo.constant {value = dense<-inf>} : tensor<f32>  // -:6
// CHECK-NEXT{LITERAL}:   %1 = stablehlo.multiply %arg0, %arg1 {rounded = True} : tensor<4x8xf32>  // -:7
// CHECK-NEXT{LITERAL}:   %2 = stablehlo.reduce %1, %0 {dimensions = (1,), monoid = stablehlo.maximum} : tensor<4xf32>  // -:8
// CHECK-NEXT{LITERAL}:     region 0(%arg2: tensor<f32>, %arg3: tensor<f32>) -> (%3) {
// CHECK-NEXT{LITERAL}:       %3 = stablehlo.maximum %arg2, %arg3 : tensor<f32>  // -:8
// CHECK-NEXT{LITERAL}:     }
// CHECK-NEXT{LITERAL}:   %4 = stablehlo.broadcast_in_dim %2 {broadcast_dimensions = (0,)} : tensor<4x8xf32>  // -:10
// CHECK-NEXT{LITERAL}:   %5 = stablehlo.subtract %1, %4 : tensor<4x8xf32>  // -:11
// CHECK-NEXT{LITERAL}:   %6 = stablehlo.multiply %5, %arg1 : tensor<4x8xf32>  // -:12
// CHECK-NEXT{LITERAL}:   %7 = stablehlo.add %6, %arg0 : tensor<4x8xf32>  // -:13
// CHECK-NEXT{LITERAL}: }
