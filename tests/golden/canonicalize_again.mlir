// RUN: jstitch opt %s --passes canonicalize_again | filecheck %s
// The same rules, after passes that wrote new ops: two reshapes are one.

func.func @main(%x: tensor<4x8xf32>) -> tensor<32xf32> {
  %a = stablehlo.reshape %x : (tensor<4x8xf32>) -> tensor<2x16xf32>
  %b = stablehlo.reshape %a : (tensor<2x16xf32>) -> tensor<32xf32>
  %c = stablehlo.tanh %b : tensor<32xf32>
  return %c : tensor<32xf32>
}

// CHECK{LITERAL}: graph(%arg0: tensor<4x8xf32>) -> (%2) {
// CHECK-NEXT{LITERAL}:   %0 = stablehlo.reshape %arg0 : tensor<2x16xf32>  // -:5
// CHECK-NEXT{LITERAL}:   %1 = stablehlo.reshape %arg0 : tensor<32xf32>  // -:6
// CHECK-NEXT{LITERAL}:   %2 = stablehlo.tanh %1 : tensor<32xf32>  // -:7
// CHECK-NEXT{LITERAL}: }
