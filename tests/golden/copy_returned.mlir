// RUN: jstitch opt %s --passes copy_returned --target h200 | filecheck %s
// On a GPU: a value that is returned twice, and an argument that is returned, need memory of their own.
// The donated one stands where it is returned.

func.func @main(%x: tensor<8xf32>, %kept: tensor<8xf32> {tf.aliasing_output = 2 : i32}, %p: tensor<8xf32>)
    -> (tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>) {
  %y = stablehlo.tanh %x : tensor<8xf32>
  return %y, %y, %kept, %p : tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>
}

// CHECK{LITERAL}: graph(%arg0: tensor<8xf32>, %arg1: tensor<8xf32>, %arg2: tensor<8xf32>) -> (%0, %1, %arg1, %2) {
// CHECK-NEXT{LITERAL}:   %0 = stablehlo.tanh %arg0 : tensor<8xf32>  // -:7
// CHECK-NEXT{LITERAL}:   %1 = stablehlo.convert %0 : tensor<8xf32>  // -:7
// CHECK-NEXT{LITERAL}:   %2 = stablehlo.convert %arg2 : tensor<8xf32>
// CHECK-NEXT{LITERAL}: }
