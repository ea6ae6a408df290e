// RUN: jstitch opt %s --passes clone_broadcasts | filecheck %s
// Each of two readers of a broadcast gets its own.

func.func @main(%m: tensor<4xf32>, %x: tensor<4x8xf32>, %y: tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>) {
  %b = stablehlo.broadcast_in_dim %m, dims = [0] : (tensor<4xf32>) -> tensor<4x8xf32>
  %a = stablehlo.subtract %x, %b : tensor<4x8xf32>
  %c = stablehlo.subtract %y, %b : tensor<4x8xf32>
  return %a, %c : tensor<4x8xf32>, tensor<4x8xf32>
}

// CHECK{LITERAL}: graph(%arg0: tensor<4xf32>, %arg1: tensor<4x8xf32>, %arg2: tensor<4x8xf32>) -> (%1, %3) {
// CHECK-NEXT{LITERAL}:   %0 = stablehlo.broadcast_in_dim %arg0 {broadcast_dimensions = (0,)} : tensor<4x8xf32>  // -:5
// CHECK-NEXT{LITERAL}:   %1 = stablehlo.subtract %arg1, %0 : tensor<4x8xf32>  // -:6
// CHECK-NEXT{LITERAL}:   %2 = stablehlo.broadcast_in_dim %arg0 {broadcast_dimensions = (0,)} : tensor<4x8xf32>  // -:5
// CHECK-NEXT{LITERAL}:   %3 = stablehlo.subtract %arg2, %2 : tensor<4x8xf32>  // -:7
// CHECK-NEXT{LITERAL}: }
