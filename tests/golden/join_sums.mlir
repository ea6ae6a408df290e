// RUN: jstitch opt %s --passes join_sums --target h200 | filecheck %s
// On a GPU: the two products of a recurrent cell are one, of weights that are joined before the loop.

func.func @main(%xs: tensor<6x8x4xf32>, %a: tensor<4x16xf32>, %b: tensor<4x16xf32>, %c: tensor<16x4xf32>) -> tensor<8x4xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %six = stablehlo.constant dense<6> : tensor<i32>
  %start = stablehlo.constant dense<0.0> : tensor<8x4xf32>
  %n, %h, %xs_, %a_, %b_, %c_ = stablehlo.while(%i = %zero, %state = %start, %in = %xs, %wa = %a, %wb = %b, %wc = %c)
    : tensor<i32>, tensor<8x4xf32>, tensor<6x8x4xf32>, tensor<4x16xf32>, tensor<4x16xf32>, tensor<16x4xf32>
  cond {
    %more = stablehlo.compare LT, %i, %six : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %part = stablehlo.dynamic_slice %in, %i, %zero, %zero, sizes = [1, 8, 4]
      : (tensor<6x8x4xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x8x4xf32>
    %x = stablehlo.reshape %part : (tensor<1x8x4xf32>) -> tensor<8x4xf32>
    %p = stablehlo.dot_general %x, %wa, contracting_dims = [1] x [0]
      : (tensor<8x4xf32>, tensor<4x16xf32>) -> tensor<8x16xf32>
    %q = stablehlo.dot_general %state, %wb, contracting_dims = [1] x [0]
      : (tensor<8x4xf32>, tensor<4x16xf32>) -> tensor<8x16xf32>
    %s = stablehlo.add %p, %q : tensor<8x16xf32>
    %t = stablehlo.tanh %s : tensor<8x16xf32>
    %next = stablehlo.dot_general %t, %wc, contracting_dims = [1] x [0]
      : (tensor<8x16xf32>, tensor<16x4xf32>) -> tensor<8x4xf32>
    %j = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %j, %next, %in, %wa, %wb, %wc
      : tensor<i32>, tensor<8x4xf32>, tensor<6x8x4xf32>, tensor<4x16xf32>, tensor<4x16xf32>, tensor<16x4xf32>
  }
  return %h : tensor<8x4xf32>
}

// CHECK{LITERAL}: graph(%arg0: tensor<6x8x4xf32>, %arg1: tensor<4x16xf32>, %arg2: tensor<4x16xf32>, %arg3: tensor<16x4xf32>) -> (%6) {
// CHECK-NEXT{LITERAL}:   %0 = stablehlo.constant {value = dense<0>} : tensor<i32>  // -:5
// CHECK-NEXT{LITERAL}:   %1 = stablehlo.constant {value = dense<1>} : tensor<i32>  // -:6
// CHECK-NEXT{LITERAL}:   %2 = stablehlo.constant {value = dense<6>} : tensor<i32>  // -:7
// CHECK-NEXT{LITERAL}:   %3 = stablehlo.constant {value = dense<0.0>} : tensor<8x4xf32>  // -:8
// CHECK-NEXT{LITERAL}:   %4 = stablehlo.concatenate %arg1, %arg2 {dimension = 0} : tensor<8x16xf32>  // -:18
// CHECK-NEXT{LITERAL}:   %5, %6, %7, %8, %9, %10, %11 = stablehlo.while %0, %3, %arg0, %arg1, %arg2, %arg3, %4 : tensor<i32>, tensor<8x4xf32>, tensor<6x8x4xf32>, tensor<4x16xf32>, tensor<4x16xf32>, tensor<16x4xf32>, tensor<8x16xf32>  // -:9
// CHECK-NEXT{LITERAL}:     region 0(%arg4: tensor<i32>, %arg5: tensor<8x4xf32>, %arg6: tensor<6x8x4xf32>, %arg7: tensor<4x16xf32>, %arg8: tensor<4x16xf32>, %arg9: tensor<16x4xf32>, %arg10: tensor<8x16xf32>) -> (%12) {
// CHECK-NEXT{LITERAL}:       %12 = stablehlo.compare %arg4, %2 {comparison_direction = LT} : tensor<i1>  // -:12
// CHECK-NEXT{LITERAL}:     }
// CHECK-NEXT{LITERAL}:     region 1(%arg11: tensor<i32>, %arg12: tensor<8x4xf32>, %arg13: tensor<6x8x4xf32>, %arg14: tensor<4x16xf32>, %arg15: tensor<4x16xf32>, %arg16: tensor<16x4xf32>, %arg17: tensor<8x16xf32>) -> (%19, %18, %arg13, %arg14, %arg15, %arg16, %arg17) {
// CHECK-NEXT{LITERAL}:       %13 = stablehlo.dynamic_slice %arg13, %arg11, %0, %0 {slice_sizes = (1, 8, 4)} : tensor<1x8x4xf32>  // -:15
// CHECK-NEXT{LITERAL}:       %14 = stablehlo.reshape %13 : tensor<8x4xf32>  // -:17
// CHECK-NEXT{LITERAL}:       %15 = stablehlo.concatenate %14, %arg12 {dimension = 1} : tensor<8x8xf32>  // -:22
// CHECK-NEXT{LITERAL}:       %16 = stablehlo.dot_general %15, %arg17 {lhs_batching_dimensions = (), rhs_batching_dimensions = (), lhs_contracting_dimensions = (1,), rhs_contracting_dimensions = (0,)} : tensor<8x16xf32>  // -:18
// CHECK-NEXT{LITERAL}:       %17 = stablehlo.tanh %16 : tensor<8x16xf32>  // -:23
// CHECK-NEXT{LITERAL}:       %18 = stablehlo.dot_general %17, %arg16 {lhs_batching_dimensions = (), rhs_batching_dimensions = (), lhs_contracting_dimensions = (1,), rhs_contracting_dimensions = (0,)} : tensor<8x4xf32>  // -:24
// CHECK-NEXT{LITERAL}:       %19 = stablehlo.add %arg11, %1 : tensor<i32>  // -:26
// CHECK-NEXT{LITERAL}:     }
// CHECK-NEXT{LITERAL}: }
