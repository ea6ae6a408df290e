// RUN: jstitch opt %s --passes canonicalize | filecheck %s
// Double negation, a transposition and its inverse, a reshape to the same shape.

func.func @main(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %a = stablehlo.negate %x : tensor<4x8xf32>
  %b = stablehlo.negate %a : tensor<4x8xf32>
  %c = stablehlo.transpose %b, dims = [1, 0] : (tensor<4x8xf32>) -> tensor<8x4xf32>
  %d = stablehlo.transpose %c, dims = [1, 0] : (tensor<8x4xf32>) -> tensor<4x8xf32>
  %e = stablehlo.reshape %d : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %f = stablehlo.exponential %e : tensor<4x8xf32>
  return %f : tensor<4x8xf32>
}

// CHECK{LITERAL}: graph(%arg0: tensor<4x8xf32>) -> (%2) {
// CHECK-NEXT{LITERAL}:   %0 = stablehlo.negate %arg0 : tensor<4x8xf32>  // -:5
// CHECK-NEXT{LITERAL}:   %1 = stablehlo.transpose %arg0 {permutation = (1, 0)} : tensor<8x4xf32>  // -:7
// CHECK-NEXT{LITERAL}:   %2 = stablehlo.exponential %arg0 : tensor<4x8xf32>  // -:10
// CHECK-NEXT{LITERAL}: }
