// RUN: jstitch opt %s --passes keep_counters --target h200 | filecheck %s
// On a GPU the counter of a loop is marked, so that XLA sees how often it turns.

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
// CHECK-NEXT{LITERAL}:       %5 = stablehlo.compare %arg1, %4 {comparison_direction = LT, left = counts the turns of a loop, which XLA so knows} : tensor<i1>  // -:10
// CHECK-NEXT{LITERAL}:     }
// CHECK-NEXT{LITERAL}:     region 1(%arg3: tensor<i32>, %arg4: tensor<8xf32>) -> (%6, %7) {
// CHECK-NEXT{LITERAL}:       %6 = stablehlo.add %arg3, %1 {left = counts the turns of a loop, which XLA so knows} : tensor<i32>  // -:13
// CHECK-NEXT{LITERAL}:       %7 = stablehlo.tanh %arg4 : tensor<8xf32>  // -:14
// CHECK-NEXT{LITERAL}:     }
// CHECK-NEXT{LITERAL}: }
