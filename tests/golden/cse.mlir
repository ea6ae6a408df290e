// RUN: jstitch opt %s --passes cse | filecheck %s
// Equal ops become one; min(x, y) and min(y, x) are not equal to it, nor is tanh of another value.

func.func @main(%x: tensor<4xf32>, %y: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %a = stablehlo.tanh %x : tensor<4xf32>
  %b = stablehlo.tanh %x : tensor<4xf32>
  %c = stablehlo.minimum %a, %y : tensor<4xf32>
  %d = stablehlo.minimum %y, %b : tensor<4xf32>
  %e = stablehlo.tanh %y : tensor<4xf32>
  %f = stablehlo.add %c, %d : tensor<4xf32>
  return %f, %e : tensor<4xf32>, tensor<4xf32>
}

// CHECK{LITERAL}: graph(%arg0: tensor<4xf32>, %arg1: tensor<4xf32>) -> (%4, %3) {
// CHECK-NEXT{LITERAL}:   %0 = stablehlo.tanh %arg0 : tensor<4xf32>  // -:5
// CHECK-NEXT{LITERAL}:   %1 = stablehlo.minimum %0, %arg1 : tensor<4xf32>  // -:7
// CHECK-NEXT{LITERAL}:   %2 = stablehlo.minimum %arg1, %0 : tensor<4xf32>  // -:8
// CHECK-NEXT{LITERAL}:   %3 = stablehlo.tanh %arg1 : tensor<4xf32>  // -:9
// CHECK-NEXT{LITERAL}:   %4 = stablehlo.add %1, %2 : tensor<4xf32>  // -:10
// CHECK-NEXT{LITERAL}: }
