// RUN: jstitch opt %s --passes plan_layers,absorb_updates --target h200 | filecheck %s
// On a GPU: the kernel of the tanh writes it into the stack.

func.func @main(%x: tensor<8xf32>, %stack: tensor<28x8xf32> {tf.aliasing_output = 0 : i32}, %i: tensor<i32>) -> tensor<28x8xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %y = stablehlo.tanh %x : tensor<8xf32>
  %row = stablehlo.reshape %y : (tensor<8xf32>) -> tensor<1x8xf32>
  %pushed = stablehlo.dynamic_update_slice %stack, %row, %i, %zero
    : (tensor<28x8xf32>, tensor<1x8xf32>, tensor<i32>, tensor<i32>) -> tensor<28x8xf32>
  return %pushed : tensor<28x8xf32>
}

// CHECK{LITERAL}: frame 0
// CHECK-NEXT{LITERAL}: pattern 0 (plan_layers): 2 ops, 1 inputs, 1 outputs
// CHECK-NEXT{LITERAL}:   inputs   %arg0: tensor<8xf32>
// CHECK-NEXT{LITERAL}:   %1 = stablehlo.tanh %arg0 : tensor<8xf32>  // -:6
// CHECK-NEXT{LITERAL}:   %2 = stablehlo.reshape %1 : tensor<1x8xf32>  // -:7
// CHECK-NEXT{LITERAL}:   in place %3 = stablehlo.dynamic_update_slice %arg1, %2, %arg2, %0 : tensor<28x8xf32>  // -:8
// CHECK-NEXT{LITERAL}:   outputs  %2
// CHECK-NEXT{LITERAL}: not fused
// CHECK-NEXT{LITERAL}:   %2 stablehlo.reshape -> %3 stablehlo.dynamic_update_slice    in place: stablehlo.dynamic_update_slice is done in place by XLA; a kernel would copy tensor<28x8xf32>
