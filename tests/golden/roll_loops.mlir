// RUN: jstitch opt %s --passes "roll_loops" | filecheck %s
// Two copies of a turn become one, and the loop turns twice as often.

func.func @main(%x: tensor<400x2x8xf32>, %c: tensor<8xf32>, %y: tensor<400x2x8xf32>) -> (tensor<8xf32>, tensor<400x2x8xf32>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %limit = stablehlo.constant dense<400> : tensor<i32>
  %r:4 = stablehlo.while(%i = %zero, %xs = %x, %v = %c, %ys = %y) : tensor<i32>, tensor<400x2x8xf32>, tensor<8xf32>, tensor<400x2x8xf32>
    cond {
      %go = stablehlo.compare LT, %i, %limit : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %go : tensor<i1>
    } do {
      %b = stablehlo.dynamic_slice %xs, %i, %zero, %zero, sizes = [1, 2, 8] : (tensor<400x2x8xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x2x8xf32>
      %s0 = stablehlo.slice %b [0:1, 0:1, 0:8] : (tensor<1x2x8xf32>) -> tensor<1x1x8xf32>
      %x0 = stablehlo.reshape %s0 : (tensor<1x1x8xf32>) -> tensor<8xf32>
      %v0 = stablehlo.multiply %v, %x0 : tensor<8xf32>
      %s1 = stablehlo.slice %b [0:1, 1:2, 0:8] : (tensor<1x2x8xf32>) -> tensor<1x1x8xf32>
      %x1 = stablehlo.reshape %s1 : (tensor<1x1x8xf32>) -> tensor<8xf32>
      %v1 = stablehlo.multiply %v0, %x1 : tensor<8xf32>
      %p0 = stablehlo.reshape %v0 : (tensor<8xf32>) -> tensor<1x1x8xf32>
      %p1 = stablehlo.reshape %v1 : (tensor<8xf32>) -> tensor<1x1x8xf32>
      %w = stablehlo.concatenate %p0, %p1, dim = 1 : (tensor<1x1x8xf32>, tensor<1x1x8xf32>) -> tensor<1x2x8xf32>
      %n = stablehlo.dynamic_update_slice %ys, %w, %i, %zero, %zero : (tensor<400x2x8xf32>, tensor<1x2x8xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<400x2x8xf32>
      %j = stablehlo.add %i, %one : tensor<i32>
      stablehlo.return %j, %xs, %v1, %n : tensor<i32>, tensor<400x2x8xf32>, tensor<8xf32>, tensor<400x2x8xf32>
    }
  return %r#2, %r#3 : tensor<8xf32>, tensor<400x2x8xf32>
}

// CHECK{LITERAL}: graph(%arg0: tensor<400x2x8xf32>, %arg1: tensor<8xf32>, %arg2: tensor<400x2x8xf32>) -> (%7, %22) {
// CHECK-NEXT{LITERAL}:   %0 = stablehlo.constant {value = dense<0>} : tensor<i32>  // -:5
// CHECK-NEXT{LITERAL}:   %1 = stablehlo.constant {value = dense<1>} : tensor<i32>  // -:6
// CHECK-NEXT{LITERAL}:   %2 = stablehlo.constant {value = dense<400>} : tensor<i32>  // -:7
// CHECK-NEXT{LITERAL}:   %3 = stablehlo.reshape %arg0 : tensor<800x8xf32>  // -:8
// CHECK-NEXT{LITERAL}:   %4 = stablehlo.reshape %arg2 : tensor<800x8xf32>  // -:8
// CHECK-NEXT{LITERAL}:   %5, %6, %7, %8 = stablehlo.while %0, %3, %arg1, %4 : tensor<i32>, tensor<800x8xf32>, tensor<8xf32>, tensor<800x8xf32>  // -:8
// CHECK-NEXT{LITERAL}:     region 0(%arg3: tensor<i32>, %arg4: tensor<800x8xf32>, %arg5: tensor<8xf32>, %arg6: tensor<800x8xf32>) -> (%10) {
// CHECK-NEXT{LITERAL}:       %9 = stablehlo.constant {value = dense<800>} : tensor<i32>
// CHECK-NEXT{LITERAL}:       %10 = stablehlo.compare %arg3, %9 {comparison_direction = LT} : tensor<i1>
// CHECK-NEXT{LITERAL}:     }
// CHECK-NEXT{LITERAL}:     region 1(%arg7: tensor<i32>, %arg8: tensor<800x8xf32>, %arg9: tensor<8xf32>, %arg10: tensor<800x8xf32>) -> (%20, %arg8, %15, %18) {
// CHECK-NEXT{LITERAL}:       %11 = stablehlo.constant {value = dense<0>} : tensor<i32>  // -:8
// CHECK-NEXT{LITERAL}:       %12 = stablehlo.dynamic_slice %arg8, %arg7, %11 {slice_sizes = (1, 8)} : tensor<1x8xf32>  // -:8
// CHECK-NEXT{LITERAL}:       %13 = stablehlo.reshape %12 : tensor<1x1x8xf32>  // -:8
// CHECK-NEXT{LITERAL}:       %14 = stablehlo.reshape %13 : tensor<8xf32>  // -:15
// CHECK-NEXT{LITERAL}:       %15 = stablehlo.multiply %arg9, %14 : tensor<8xf32>  // -:16
// CHECK-NEXT{LITERAL}:       %16 = stablehlo.reshape %15 : tensor<1x8xf32>  // -:8
// CHECK-NEXT{LITERAL}:       %17 = stablehlo.constant {value = dense<0>} : tensor<i32>  // -:8
// CHECK-NEXT{LITERAL}:       %18 = stablehlo.dynamic_update_slice %arg10, %16, %arg7, %17 : tensor<800x8xf32>  // -:8
// CHECK-NEXT{LITERAL}:       %19 = stablehlo.constant {value = dense<1>} : tensor<i32>  // -:8
// CHECK-NEXT{LITERAL}:       %20 = stablehlo.add %arg7, %19 : tensor<i32>  // -:8
// CHECK-NEXT{LITERAL}:     }
// CHECK-NEXT{LITERAL}:   %21 = stablehlo.reshape %6 : tensor<400x2x8xf32>  // -:8
// CHECK-NEXT{LITERAL}:   %22 = stablehlo.reshape %8 : tensor<400x2x8xf32>  // -:8
// CHECK-NEXT{LITERAL}: }
