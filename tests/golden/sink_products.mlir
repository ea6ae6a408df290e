// RUN: jstitch opt %s --passes sink_products | filecheck %s
// The gradient of a cell's weights, and of what it is given: each turn leaves what is multiplied behind the loop, once.

func.func @main(%x: tensor<9x4x8xf32>, %w: tensor<8x8xf32>, %g: tensor<8x8xf32>, %u: tensor<9x4x8xf32>)
    -> (tensor<8x8xf32>, tensor<9x4x8xf32>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %0:3 = stablehlo.while(%i = %zero, %s = %g, %y = %u) : tensor<i32>, tensor<8x8xf32>, tensor<9x4x8xf32>
  cond {
    %limit = stablehlo.constant dense<9> : tensor<i32>
    %more = stablehlo.compare LT, %i, %limit, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %one = stablehlo.constant dense<1> : tensor<i32>
    %first = stablehlo.constant dense<0> : tensor<i32>
    %part = stablehlo.dynamic_slice %x, %i, %first, %first, sizes = [1, 4, 8]
      : (tensor<9x4x8xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x4x8xf32>
    %now = stablehlo.reshape %part : (tensor<1x4x8xf32>) -> tensor<4x8xf32>
    %d = stablehlo.tanh %now : tensor<4x8xf32>
    %p = stablehlo.dot_general %now, %d, contracting_dims = [0] x [0]
      : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<8x8xf32>
    %total = stablehlo.add %s, %p : tensor<8x8xf32>
    %q = stablehlo.dot_general %d, %w, contracting_dims = [1] x [1]
      : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
    %left = stablehlo.reshape %q : (tensor<4x8xf32>) -> tensor<1x4x8xf32>
    %stack = stablehlo.dynamic_update_slice %y, %left, %i, %first, %first
      : (tensor<9x4x8xf32>, tensor<1x4x8xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<9x4x8xf32>
    %next = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %next, %total, %stack : tensor<i32>, tensor<8x8xf32>, tensor<9x4x8xf32>
  }
  return %0#1, %0#2 : tensor<8x8xf32>, tensor<9x4x8xf32>
}

// CHECK{LITERAL}: graph(%arg0: tensor<9x4x8xf32>, %arg1: tensor<8x8xf32>, %arg2: tensor<8x8xf32>, %arg3: tensor<9x4x8xf32>) -> (%21, %25) {
// CHECK-NEXT{LITERAL}:   %0 = stablehlo.constant {value = dense<0>} : tensor<i32>  // -:6
// CHECK-NEXT{LITERAL}:   %1 = stablehlo.constant {value = dense<0.0>} : tensor<9x4x8xf32>  // -:7
// CHECK-NEXT{LITERAL}:   %2, %3 = stablehlo.while %0, %1 : tensor<i32>, tensor<9x4x8xf32>  // -:7
// CHECK-NEXT{LITERAL}:     region 0(%arg4: tensor<i32>, %arg5: tensor<9x4x8xf32>) -> (%5) {
// CHECK-NEXT{LITERAL}:       %4 = stablehlo.constant {value = dense<9>} : tensor<i32>  // -:9
// CHECK-NEXT{LITERAL}:       %5 = stablehlo.compare %arg4, %4 {compare_type = SIGNED, comparison_direction = LT} : tensor<i1>  // -:10
// CHECK-NEXT{LITERAL}:     }
// CHECK-NEXT{LITERAL}:     region 1(%arg6: tensor<i32>, %arg7: tensor<9x4x8xf32>) -> (%14, %17) {
// CHECK-NEXT{LITERAL}:       %6 = stablehlo.constant {value = dense<1>} : tensor<i32>  // -:13
// CHECK-NEXT{LITERAL}:       %7 = stablehlo.constant {value = dense<0>} : tensor<i32>  // -:14
// CHECK-NEXT{LITERAL}:       %8 = stablehlo.dynamic_slice %arg0, %arg6, %7, %7 {slice_sizes = (1, 4, 8)} : tensor<1x4x8xf32>  // -:15
// CHECK-NEXT{LITERAL}:       %9 = stablehlo.reshape %8 : tensor<4x8xf32>  // -:17
// CHECK-NEXT{LITERAL}:       %10 = stablehlo.tanh %9 : tensor<4x8xf32>  // -:18
// CHECK-NEXT{LITERAL}:       %11 = stablehlo.dot_general %9, %10 {lhs_batching_dimensions = (), rhs_batching_dimensions = (), lhs_contracting_dimensions = (0,), rhs_contracting_dimensions = (0,)} : tensor<8x8xf32>  // -:19
// CHECK-NEXT{LITERAL}:       %12 = stablehlo.dot_general %10, %arg1 {lhs_batching_dimensions = (), rhs_batching_dimensions = (), lhs_contracting_dimensions = (1,), rhs_contracting_dimensions = (1,)} : tensor<4x8xf32>  // -:22
// CHECK-NEXT{LITERAL}:       %13 = stablehlo.reshape %12 : tensor<1x4x8xf32>  // -:24
// CHECK-NEXT{LITERAL}:       %14 = stablehlo.add %arg6, %6 : tensor<i32>  // -:27
// CHECK-NEXT{LITERAL}:       %15 = stablehlo.reshape %10 : tensor<1x4x8xf32>  // -:18
// CHECK-NEXT{LITERAL}:       %16 = stablehlo.constant {value = dense<0>} : tensor<i32>  // -:18
// CHECK-NEXT{LITERAL}:       %17 = stablehlo.dynamic_update_slice %arg7, %15, %arg6, %16, %16 : tensor<9x4x8xf32>  // -:18
// CHECK-NEXT{LITERAL}:     }
// CHECK-NEXT{LITERAL}:   %18 = stablehlo.reshape %arg0 : tensor<9x4x8xf32>  // -:19
// CHECK-NEXT{LITERAL}:   %19 = stablehlo.reshape %3 : tensor<9x4x8xf32>  // -:19
// CHECK-NEXT{LITERAL}:   %20 = stablehlo.dot_general %18, %19 {lhs_batching_dimensions = (), rhs_batching_dimensions = (), lhs_contracting_dimensions = (0, 1), rhs_contracting_dimensions = (0, 1)} : tensor<8x8xf32>  // -:19
// CHECK-NEXT{LITERAL}:   %21 = stablehlo.add %arg2, %20 : tensor<8x8xf32>  // -:19
// CHECK-NEXT{LITERAL}:   %22 = stablehlo.reshape %3 : tensor<9x4x8xf32>  // -:22
// CHECK-NEXT{LITERAL}:   %23 = stablehlo.dot_general %22, %arg1 {lhs_batching_dimensions = (), rhs_batching_dimensions = (), lhs_contracting_dimensions = (2,), rhs_contracting_dimensions = (1,)} : tensor<9x4x8xf32>  // -:22
// CHECK-NEXT{LITERAL}:   %24 = stablehlo.reshape %23 : tensor<9x1x4x8xf32>  // -:22
// CHECK-NEXT{LITERAL}:   %25 = stablehlo.reshape %24 : tensor<9x4x8xf32>  // -:22
// CHECK-NEXT{LITERAL}: }
