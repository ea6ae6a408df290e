// RUN: jstitch opt %s --passes leave_unset --target h200 | filecheck %s
// On a GPU: what the turns of a loop fill row by row starts as memory that nobody has written.

func.func @main(%row: tensor<1x4xf32>) -> (tensor<6x4xf32>, tensor<6x4xf32>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %five = stablehlo.constant dense<5> : tensor<i32>
  %six = stablehlo.constant dense<6> : tensor<i32>
  %zeros = stablehlo.constant dense<0.0> : tensor<6x4xf32>
  %n, %x, %up, %some = stablehlo.while(%i = %zero, %r = %row, %all = %zeros, %few = %zeros)
    : tensor<i32>, tensor<1x4xf32>, tensor<6x4xf32>, tensor<6x4xf32>
  cond {
    %more = stablehlo.compare LT, %i, %six : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %from_the_end = stablehlo.subtract %five, %i : tensor<i32>
    %filled = stablehlo.dynamic_update_slice %all, %r, %from_the_end, %zero
      : (tensor<6x4xf32>, tensor<1x4xf32>, tensor<i32>, tensor<i32>) -> tensor<6x4xf32>
    %first = stablehlo.dynamic_update_slice %few, %r, %zero, %zero
      : (tensor<6x4xf32>, tensor<1x4xf32>, tensor<i32>, tensor<i32>) -> tensor<6x4xf32>
    %j = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %j, %r, %filled, %first : tensor<i32>, tensor<1x4xf32>, tensor<6x4xf32>, tensor<6x4xf32>
  }
  return %up, %some : tensor<6x4xf32>, tensor<6x4xf32>
}

// CHECK{LITERAL}: graph(%arg0: tensor<1x4xf32>) -> (%8, %9) {
// CHECK-NEXT{LITERAL}:   %0 = stablehlo.constant {value = dense<0>} : tensor<i32>  // -:5
// CHECK-NEXT{LITERAL}:   %1 = stablehlo.constant {value = dense<1>} : tensor<i32>  // -:6
// CHECK-NEXT{LITERAL}:   %2 = stablehlo.constant {value = dense<5>} : tensor<i32>  // -:7
// CHECK-NEXT{LITERAL}:   %3 = stablehlo.constant {value = dense<6>} : tensor<i32>  // -:8
// CHECK-NEXT{LITERAL}:   %4 = stablehlo.constant {value = dense<0.0>} : tensor<6x4xf32>  // -:9
// CHECK-NEXT{LITERAL}:   %5 = jstitch.unset : tensor<6x4xf32>  // -:10
// CHECK-NEXT{LITERAL}:   %6, %7, %8, %9 = stablehlo.while %0, %arg0, %5, %4 : tensor<i32>, tensor<1x4xf32>, tensor<6x4xf32>, tensor<6x4xf32>  // -:10
// CHECK-NEXT{LITERAL}:     region 0(%arg1: tensor<i32>, %arg2: tensor<1x4xf32>, %arg3: tensor<6x4xf32>, %arg4: tensor<6x4xf32>) -> (%10) {
// CHECK-NEXT{LITERAL}:       %10 = stablehlo.compare %arg1, %3 {comparison_direction = LT} : tensor<i1>  // -:13
// CHECK-NEXT{LITERAL}:     }
// CHECK-NEXT{LITERAL}:     region 1(%arg5: tensor<i32>, %arg6: tensor<1x4xf32>, %arg7: tensor<6x4xf32>, %arg8: tensor<6x4xf32>) -> (%14, %arg6, %12, %13) {
// CHECK-NEXT{LITERAL}:       %11 = stablehlo.subtract %2, %arg5 : tensor<i32>  // -:16
// CHECK-NEXT{LITERAL}:       %12 = stablehlo.dynamic_update_slice %arg7, %arg6, %11, %0 : tensor<6x4xf32>  // -:17
// CHECK-NEXT{LITERAL}:       %13 = stablehlo.dynamic_update_slice %arg8, %arg6, %0, %0 : tensor<6x4xf32>  // -:19
// CHECK-NEXT{LITERAL}:       %14 = stablehlo.add %arg5, %1 : tensor<i32>  // -:21
// CHECK-NEXT{LITERAL}:     }
// CHECK-NEXT{LITERAL}: }
