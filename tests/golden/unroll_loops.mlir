// RUN: jstitch opt %s --passes "unroll_loops{trips=3}" | filecheck %s
// Loops of three and of five turns; only as many as the option says are written out.

func.func @main(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %three = stablehlo.constant dense<3> : tensor<i32>
  %five = stablehlo.constant dense<5> : tensor<i32>
  %a:2 = stablehlo.while(%i = %zero, %v = %x) : tensor<i32>, tensor<4xf32>
    cond {
      %go = stablehlo.compare LT, %i, %three : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %go : tensor<i1>
    } do {
      %j = stablehlo.add %i, %one : tensor<i32>
      %w = stablehlo.add %v, %v : tensor<4xf32>
      stablehlo.return %j, %w : tensor<i32>, tensor<4xf32>
    }
  %b:2 = stablehlo.while(%i = %zero, %v = %x) : tensor<i32>, tensor<4xf32>
    cond {
      %go = stablehlo.compare LT, %i, %five : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %go : tensor<i1>
    } do {
      %j = stablehlo.add %i, %one : tensor<i32>
      %w = stablehlo.multiply %v, %v : tensor<4xf32>
      stablehlo.return %j, %w : tensor<i32>, tensor<4xf32>
    }
  return %a#1, %b#1 : tensor<4xf32>, tensor<4xf32>
}

// CHECK{LITERAL}: graph(%arg0: tensor<4xf32>) -> (%9, %11) {
// CHECK-NEXT{LITERAL}:   %0 = stablehlo.constant {value = dense<0>} : tensor<i32>  // -:5
// CHECK-NEXT{LITERAL}:   %1 = stablehlo.constant {value = dense<1>} : tensor<i32>  // -:6
// CHECK-NEXT{LITERAL}:   %2 = stablehlo.constant {value = dense<3>} : tensor<i32>  // -:7
// CHECK-NEXT{LITERAL}:   %3 = stablehlo.constant {value = dense<5>} : tensor<i32>  // -:8
// CHECK-NEXT{LITERAL}:   %4 = stablehlo.add %0, %1 : tensor<i32>  // -:14
// CHECK-NEXT{LITERAL}:   %5 = stablehlo.add %arg0, %arg0 : tensor<4xf32>  // -:15
// CHECK-NEXT{LITERAL}:   %6 = stablehlo.add %4, %1 : tensor<i32>  // -:14
// CHECK-NEXT{LITERAL}:   %7 = stablehlo.add %5, %5 : tensor<4xf32>  // -:15
// CHECK-NEXT{LITERAL}:   %8 = stablehlo.add %6, %1 : tensor<i32>  // -:14
// CHECK-NEXT{LITERAL}:   %9 = stablehlo.add %7, %7 : tensor<4xf32>  // -:15
// CHECK-NEXT{LITERAL}:   %10, %11 = stablehlo.while %0, %arg0 : tensor<i32>, tensor<4xf32>  // -:18
// CHECK-NEXT{LITERAL}:     region 0(%arg1: tensor<i32>, %arg2: tensor<4xf32>) -> (%12) {
// CHECK-NEXT{LITERAL}:       %12 = stablehlo.compare %arg1, %3 {comparison_direction = LT} : tensor<i1>  // -:20
// CHECK-NEXT{LITERAL}:     }
// CHECK-NEXT{LITERAL}:     region 1(%arg3: tensor<i32>, %arg4: tensor<4xf32>) -> (%13, %14) {
// CHECK-NEXT{LITERAL}:       %13 = stablehlo.add %arg3, %1 : tensor<i32>  // -:23
// CHECK-NEXT{LITERAL}:       %14 = stablehlo.multiply %arg4, %arg4 : tensor<4xf32>  // -:24
// CHECK-NEXT{LITERAL}:     }
// CHECK-NEXT{LITERAL}: }
