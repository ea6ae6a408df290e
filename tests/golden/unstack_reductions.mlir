// RUN: jstitch opt %s --passes unstack_reductions | filecheck %s
// The mean of two of an ensemble, which are never stacked.

func.func @main(%a: tensor<8xf32>, %b: tensor<8xf32>) -> tensor<8xf32> {
  %0 = stablehlo.reshape %a : (tensor<8xf32>) -> tensor<1x8xf32>
  %1 = stablehlo.reshape %b : (tensor<8xf32>) -> tensor<1x8xf32>
  %2 = stablehlo.concatenate %0, %1, dim = 0 : (tensor<1x8xf32>, tensor<1x8xf32>) -> tensor<2x8xf32>
  %3 = stablehlo.tanh %2 : tensor<2x8xf32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %4 = stablehlo.reduce(%3 init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<2x8xf32>, tensor<f32>) -> tensor<8xf32>
  return %4 : tensor<8xf32>
}

// CHECK{LITERAL}: graph(%arg0: tensor<8xf32>, %arg1: tensor<8xf32>) -> (%9) {
// CHECK-NEXT{LITERAL}:   %0 = stablehlo.reshape %arg0 : tensor<1x8xf32>  // -:5
// CHECK-NEXT{LITERAL}:   %1 = stablehlo.reshape %arg1 : tensor<1x8xf32>  // -:6
// CHECK-NEXT{LITERAL}:   %2 = stablehlo.concatenate %0, %1 {dimension = 0} : tensor<2x8xf32>  // -:7
// CHECK-NEXT{LITERAL}:   %3 = stablehlo.tanh %2 : tensor<2x8xf32>  // -:8
// CHECK-NEXT{LITERAL}:   %4 = stablehlo.constant {value = dense<0.0>} : tensor<f32>  // -:9
// CHECK-NEXT{LITERAL}:   %5 = stablehlo.reshape %0 : tensor<8xf32>  // -:10
// CHECK-NEXT{LITERAL}:   %6 = stablehlo.tanh %5 : tensor<8xf32>  // -:8
// CHECK-NEXT{LITERAL}:   %7 = stablehlo.reshape %1 : tensor<8xf32>  // -:10
// CHECK-NEXT{LITERAL}:   %8 = stablehlo.tanh %7 : tensor<8xf32>  // -:8
// CHECK-NEXT{LITERAL}:   %9 = stablehlo.add %6, %8 : tensor<8xf32>  // -:10
// CHECK-NEXT{LITERAL}: }
