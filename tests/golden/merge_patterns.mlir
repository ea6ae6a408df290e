// RUN: jstitch opt %s --passes plan_layers,merge_patterns | filecheck %s
// Row sums and column sums of one tensor: two patterns whose schedules clash share one reading.

func.func @main(%x: tensor<2048x768xf32>, %dy: tensor<2048x768xf32>) -> (tensor<2048xf32>, tensor<768xf32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %p = stablehlo.multiply %x, %dy : tensor<2048x768xf32>
  %rows = stablehlo.reduce(%p init: %zero) applies stablehlo.add across dimensions = [1]
    : (tensor<2048x768xf32>, tensor<f32>) -> tensor<2048xf32>
  %columns = stablehlo.reduce(%dy init: %zero) applies stablehlo.add across dimensions = [0]
    : (tensor<2048x768xf32>, tensor<f32>) -> tensor<768xf32>
  return %rows, %columns : tensor<2048xf32>, tensor<768xf32>
}

// CHECK{LITERAL}: frame 0
// CHECK-NEXT{LITERAL}: pattern 0 (merge_patterns): 4 ops, 2 inputs, 2 outputs
// CHECK-NEXT{LITERAL}:   inputs   %arg0: tensor<2048x768xf32>, %arg1: tensor<2048x768xf32>
// CHECK-NEXT{LITERAL}:   %0 = stablehlo.constant {value = dense<0.0>} : tensor<f32>  // -:5
// CHECK-NEXT{LITERAL}:   %1 = stablehlo.multiply %arg0, %arg1 : tensor<2048x768xf32>  // -:6
// CHECK-NEXT{LITERAL}:   %2 = stablehlo.reduce %1, %0 {dimensions = (1,), monoid = stablehlo.add} : tensor<2048xf32>  // -:7
// CHECK-NEXT{LITERAL}:   %4 = stablehlo.reduce %arg1, %0 {dimensions = (0,), monoid = stablehlo.add} : tensor<768xf32>  // -:9
// CHECK-NEXT{LITERAL}:   outputs  %2, %4
