// RUN: jstitch opt %s --passes dce | filecheck %s
// Nobody reads the exponential; the custom call may do something, and stays.

func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %a = stablehlo.exponential %x : tensor<4xf32>
  %b = stablehlo.negate %a : tensor<4xf32>
  %c = stablehlo.custom_call @effect(%x) {has_side_effect = true} : (tensor<4xf32>) -> tensor<4xf32>
  %d = stablehlo.tanh %x : tensor<4xf32>
  return %d : tensor<4xf32>
}

// CHECK{LITERAL}: graph(%arg0: tensor<4xf32>) -> (%1) {
// CHECK-NEXT{LITERAL}:   %0 = stablehlo.custom_call %arg0 {num_operands = 1, pure = False} : tensor<4xf32>  // -:7
// CHECK-NEXT{LITERAL}:   %1 = stablehlo.tanh %arg0 : tensor<4xf32>  // -:8
// CHECK-NEXT{LITERAL}: }
