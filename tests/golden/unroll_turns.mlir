// RUN: jstitch opt %s --passes unroll_turns --target h200 | filecheck %s
// On a GPU a body holds several turns: 28 turns are 7 times 4.

func.func @main(%x: tensor<8xf32>) -> tensor<8xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %r:2 = stablehlo.while(%i = %zero, %v = %x) : tensor<i32>, tensor<8xf32>
    cond {
      %limit = stablehlo.constant dense<28> : tensor<i32>
      %go = stablehlo.compare LT, %i, %limit : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %go : tensor<i1>
    } do {
      %j = stablehlo.add %i, %one : tensor<i32>
      %w = stablehlo.tanh %v : tensor<8xf32>
      stablehlo.return %j, %w : tensor<i32>, tensor<8xf32>
    }
  return %r#1 : tensor<8xf32>
}

// CHECK{LITERAL}: graph(%arg0: tensor<8xf32>) -> (%3) {
// CHECK-NEXT{LITERAL}:   %0 = stablehlo.constant {value = dense<0>} : tensor<i32>  // -:5
// CHECK-NEXT{LITERAL}:   %1 = stablehlo.constant {value = dense<1>} : tensor<i32>  // -:6
// CHECK-NEXT{LITERAL}:   %2, %3 = stablehlo.while %0, %arg0 : tensor<i32>, tensor<8xf32>  // -:7
// CHECK-NEXT{LITERAL}:     region 0(%arg1: tensor<i32>, %arg2: tensor<8xf32>) -> (%5) {
// CHECK-NEXT{LITERAL}:       %4 = stablehlo.constant {value = dense<28>} : tensor<i32>  // -:9
// CHECK-NEXT{LITERAL}:       %5 = stablehlo.compare %arg1, %4 {comparison_direction = LT} : tensor<i1>  // -:10
// CHECK-NEXT{LITERAL}:     }
// CHECK-NEXT{LITERAL}:     region 1(%arg3: tensor<i32>, %arg4: tensor<8xf32>) -> (%21, %19) {
// CHECK-NEXT{LITERAL}:       %6 = stablehlo.add %arg3, %1 : tensor<i32>  // -:13
// CHECK-NEXT{LITERAL}:       %7 = stablehlo.tanh %arg4 : tensor<8xf32>  // -:14
// CHECK-NEXT{LITERAL}:       %8 = stablehlo.constant {value = dense<1>} : tensor<i32>  // -:13
// CHECK-NEXT{LITERAL}:       %9 = stablehlo.add %arg3, %8 : tensor<i32>  // -:13
// CHECK-NEXT{LITERAL}:       %10 = stablehlo.add %9, %1 : tensor<i32>  // -:13
// CHECK-NEXT{LITERAL}:       %11 = stablehlo.tanh %7 : tensor<8xf32>  // -:14
// CHECK-NEXT{LITERAL}:       %12 = stablehlo.constant {value = dense<2>} : tensor<i32>  // -:13
// CHECK-NEXT{LITERAL}:       %13 = stablehlo.add %arg3, %12 : tensor<i32>  // -:13
// CHECK-NEXT{LITERAL}:       %14 = stablehlo.add %13, %1 : tensor<i32>  // -:13
// CHECK-NEXT{LITERAL}:       %15 = stablehlo.tanh %11 : tensor<8xf32>  // -:14
// CHECK-NEXT{LITERAL}:       %16 = stablehlo.constant {value = dense<3>} : tensor<i32>  // -:13
// CHECK-NEXT{LITERAL}:       %17 = stablehlo.add %arg3, %16 : tensor<i32>  // -:13
// CHECK-NEXT{LITERAL}:       %18 = stablehlo.add %17, %1 : tensor<i32>  // -:13
// CHECK-NEXT{LITERAL}:       %19 = stablehlo.tanh %15 : tensor<8xf32>  // -:14
// CHECK-NEXT{LITERAL}:       %20 = stablehlo.constant {value = dense<4>} : tensor<i32>  // -:13
// CHECK-NEXT{LITERAL}:       %21 = stablehlo.add %arg3, %20 : tensor<i32>  // -:13
// CHECK-NEXT{LITERAL}:     }
// CHECK-NEXT{LITERAL}: }
