// RUN: jstitch opt %s --passes copy_carried --target h200 | filecheck %s
// What a loop's body is given and puts on a stack as it is gets a copy that a kernel can write.

func.func @main(%x: tensor<8xf32>, %s: tensor<28x8xf32>) -> tensor<28x8xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %limit = stablehlo.constant dense<28> : tensor<i32>
  %r:3 = stablehlo.while(%i = %zero, %v = %x, %stack = %s) : tensor<i32>, tensor<8xf32>, tensor<28x8xf32>
    cond {
      %go = stablehlo.compare LT, %i, %limit : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %go : tensor<i1>
    } do {
      %j = stablehlo.add %i, %one : tensor<i32>
      %row = stablehlo.reshape %v : (tensor<8xf32>) -> tensor<1x8xf32>
      %pushed = stablehlo.dynamic_update_slice %stack, %row, %i, %zero : (tensor<28x8xf32>, tensor<1x8xf32>, tensor<i32>, tensor<i32>) -> tensor<28x8xf32>
      %w = stablehlo.tanh %v : tensor<8xf32>
      stablehlo.return %j, %w, %pushed : tensor<i32>, tensor<8xf32>, tensor<28x8xf32>
    }
  return %r#2 : tensor<28x8xf32>
}

// CHECK{LITERAL}: graph(%arg0: tensor<8xf32>, %arg1: tensor<28x8xf32>) -> (%5) {
// CHECK-NEXT{LITERAL}:   %0 = stablehlo.constant {value = dense<0>} : tensor<i32>  // -:5
// CHECK-NEXT{LITERAL}:   %1 = stablehlo.constant {value = dense<1>} : tensor<i32>  // -:6
// CHECK-NEXT{LITERAL}:   %2 = stablehlo.constant {value = dense<28>} : tensor<i32>  // -:7
// CHECK-NEXT{LITERAL}:   %3, %4, %5 = stablehlo.while %0, %arg0, %arg1 : tensor<i32>, tensor<8xf32>, tensor<28x8xf32>  // -:8
// CHECK-NEXT{LITERAL}:     region 0(%arg2: tensor<i32>, %arg3: tensor<8xf32>, %arg4: tensor<28x8xf32>) -> (%6) {
// CHECK-NEXT{LITERAL}:       %6 = stablehlo.compare %arg2, %2 {comparison_direction = LT} : tensor<i1>  // -:10
// CHECK-NEXT{LITERAL}:     }
// CHECK-NEXT{LITERAL}:     region 1(%arg5: tensor<i32>, %arg6: tensor<8xf32>, %arg7: tensor<28x8xf32>) -> (%7, %11, %10) {
// CHECK-NEXT{LITERAL}:       %7 = stablehlo.add %arg5, %1 : tensor<i32>  // -:13
// CHECK-NEXT{LITERAL}:       %8 = stablehlo.reshape %arg6 : tensor<1x8xf32>  // -:14
// CHECK-NEXT{LITERAL}:       %9 = stablehlo.convert %8 : tensor<1x8xf32>  // -:15
// CHECK-NEXT{LITERAL}:       %10 = stablehlo.dynamic_update_slice %arg7, %9, %arg5, %0 : tensor<28x8xf32>  // -:15
// CHECK-NEXT{LITERAL}:       %11 = stablehlo.tanh %arg6 : tensor<8xf32>  // -:16
// CHECK-NEXT{LITERAL}:     }
// CHECK-NEXT{LITERAL}: }
