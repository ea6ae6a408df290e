// RUN: jstitch opt %s --passes fold_constants | filecheck %s
// A splat of any size, a small dense constant; the input's addition stays.

func.func @main(%x: tensor<1024x1024xf32>) -> (tensor<1024x1024xf32>, tensor<4xi32>) {
  %two = stablehlo.constant dense<2.0> : tensor<1024x1024xf32>
  %four = stablehlo.constant dense<4.0> : tensor<1024x1024xf32>
  %half = stablehlo.divide %two, %four : tensor<1024x1024xf32>
  %y = stablehlo.add %x, %half : tensor<1024x1024xf32>
  %n = stablehlo.constant dense<[1, 2, 3, 4]> : tensor<4xi32>
  %m = stablehlo.multiply %n, %n : tensor<4xi32>
  return %y, %m : tensor<1024x1024xf32>, tensor<4xi32>
}

// CHECK{LITERAL}: graph(%arg0: tensor<1024x1024xf32>) -> (%3, %5) {
// CHECK-NEXT{LITERAL}:   %0 = stablehlo.constant {value = dense<2.0>} : tensor<1024x1024xf32>  // -:5
// CHECK-NEXT{LITERAL}:   %1 = stablehlo.constant {value = dense<4.0>} : tensor<1024x1024xf32>  // -:6
// CHECK-NEXT{LITERAL}:   %2 = stablehlo.constant {value = dense<0.5>} : tensor<1024x1024xf32>  // -:7
// CHECK-NEXT{LITERAL}:   %3 = stablehlo.add %arg0, %2 : tensor<1024x1024xf32>  // -:8
// CHECK-NEXT{LITERAL}:   %4 = stablehlo.constant {value = dense<[1, 2, 3, 4]>} : tensor<4xi32>  // -:9
// CHECK-NEXT{LITERAL}:   %5 = stablehlo.constant {value = dense<[1, 4, 9, 16]>} : tensor<4xi32>  // -:10
// CHECK-NEXT{LITERAL}: }
