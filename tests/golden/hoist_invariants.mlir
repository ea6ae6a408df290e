// RUN: jstitch opt %s --passes hoist_invariants --target cpu | filecheck %s
// Weights that turns scale are scaled once, before the loop.

func.func @main(%w: tensor<16x16xf32>, %h: tensor<4x16xf32>) -> tensor<4x16xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %0:3 = stablehlo.while(%i = %zero, %c = %h, %v = %w) : tensor<i32>, tensor<4x16xf32>, tensor<16x16xf32>
  cond {
    %limit = stablehlo.constant dense<9> : tensor<i32>
    %more = stablehlo.compare LT, %i, %limit, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %one = stablehlo.constant dense<1> : tensor<i32>
    %half = stablehlo.constant dense<0.5> : tensor<16x16xf32>
    %less = stablehlo.multiply %v, %half : tensor<16x16xf32>
    %z = stablehlo.dot_general %c, %less, contracting_dims = [1] x [0]
      : (tensor<4x16xf32>, tensor<16x16xf32>) -> tensor<4x16xf32>
    %next = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %next, %z, %v : tensor<i32>, tensor<4x16xf32>, tensor<16x16xf32>
  }
  return %0#1 : tensor<4x16xf32>
}

// CHECK{LITERAL}: graph(%arg0: tensor<16x16xf32>, %arg1: tensor<4x16xf32>) -> (%4) {
// CHECK-NEXT{LITERAL}:   %0 = stablehlo.constant {value = dense<0>} : tensor<i32>  // -:5
// CHECK-NEXT{LITERAL}:   %1 = stablehlo.constant {value = dense<0.5>} : tensor<16x16xf32>  // -:13
// CHECK-NEXT{LITERAL}:   %2 = stablehlo.multiply %arg0, %1 : tensor<16x16xf32>  // -:14
// CHECK-NEXT{LITERAL}:   %3, %4, %5, %6 = stablehlo.while %0, %arg1, %arg0, %2 : tensor<i32>, tensor<4x16xf32>, tensor<16x16xf32>, tensor<16x16xf32>  // -:6
// CHECK-NEXT{LITERAL}:     region 0(%arg2: tensor<i32>, %arg3: tensor<4x16xf32>, %arg4: tensor<16x16xf32>, %arg5: tensor<16x16xf32>) -> (%8) {
// CHECK-NEXT{LITERAL}:       %7 = stablehlo.constant {value = dense<9>} : tensor<i32>  // -:8
// CHECK-NEXT{LITERAL}:       %8 = stablehlo.compare %arg2, %7 {compare_type = SIGNED, comparison_direction = LT} : tensor<i1>  // -:9
// CHECK-NEXT{LITERAL}:     }
// CHECK-NEXT{LITERAL}:     region 1(%arg6: tensor<i32>, %arg7: tensor<4x16xf32>, %arg8: tensor<16x16xf32>, %arg9: tensor<16x16xf32>) -> (%12, %11, %arg8, %arg9) {
// CHECK-NEXT{LITERAL}:       %9 = stablehlo.constant {value = dense<1>} : tensor<i32>  // -:12
// CHECK-NEXT{LITERAL}:       %10 = stablehlo.constant {value = dense<0.5>} : tensor<16x16xf32>  // -:13
// CHECK-NEXT{LITERAL}:       %11 = stablehlo.dot_general %arg7, %arg9 {lhs_batching_dimensions = (), rhs_batching_dimensions = (), lhs_contracting_dimensions = (1,), rhs_contracting_dimensions = (0,)} : tensor<4x16xf32>  // -:15
// CHECK-NEXT{LITERAL}:       %12 = stablehlo.add %arg6, %9 : tensor<i32>  // -:17
// CHECK-NEXT{LITERAL}:     }
// CHECK-NEXT{LITERAL}: }
