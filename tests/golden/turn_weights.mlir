// RUN: jstitch opt %s --passes turn_weights --target cpu | filecheck %s
// On a CPU: weights that turns sum along lines of memory are transposed once, before the loop.

func.func @main(%x: tensor<20x4x32xf32>, %w: tensor<48x32xf32>, %h: tensor<4x48xf32>) -> tensor<4x48xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %0:2 = stablehlo.while(%i = %zero, %c = %h) : tensor<i32>, tensor<4x48xf32>
  cond {
    %limit = stablehlo.constant dense<20> : tensor<i32>
    %more = stablehlo.compare LT, %i, %limit, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %one = stablehlo.constant dense<1> : tensor<i32>
    %first = stablehlo.constant dense<0> : tensor<i32>
    %part = stablehlo.dynamic_slice %x, %i, %first, %first, sizes = [1, 4, 32]
      : (tensor<20x4x32xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x4x32xf32>
    %now = stablehlo.reshape %part : (tensor<1x4x32xf32>) -> tensor<4x32xf32>
    %z = stablehlo.dot_general %now, %w, contracting_dims = [1] x [1]
      : (tensor<4x32xf32>, tensor<48x32xf32>) -> tensor<4x48xf32>
    %a = stablehlo.add %c, %z : tensor<4x48xf32>
    %b = stablehlo.tanh %a : tensor<4x48xf32>
    %next = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %next, %b : tensor<i32>, tensor<4x48xf32>
  }
  return %0#1 : tensor<4x48xf32>
}

// CHECK{LITERAL}: graph(%arg0: tensor<20x4x32xf32>, %arg1: tensor<48x32xf32>, %arg2: tensor<4x48xf32>) -> (%3) {
// CHECK-NEXT{LITERAL}:   %0 = stablehlo.constant {value = dense<0>} : tensor<i32>  // -:5
// CHECK-NEXT{LITERAL}:   %1 = stablehlo.transpose %arg1 {permutation = (1, 0)} : tensor<32x48xf32>  // -:17
// CHECK-NEXT{LITERAL}:   %2, %3, %4 = stablehlo.while %0, %arg2, %1 : tensor<i32>, tensor<4x48xf32>, tensor<32x48xf32>  // -:6
// CHECK-NEXT{LITERAL}:     region 0(%arg3: tensor<i32>, %arg4: tensor<4x48xf32>, %arg5: tensor<32x48xf32>) -> (%6) {
// CHECK-NEXT{LITERAL}:       %5 = stablehlo.constant {value = dense<20>} : tensor<i32>  // -:8
// CHECK-NEXT{LITERAL}:       %6 = stablehlo.compare %arg3, %5 {compare_type = SIGNED, comparison_direction = LT} : tensor<i1>  // -:9
// CHECK-NEXT{LITERAL}:     }
// CHECK-NEXT{LITERAL}:     region 1(%arg6: tensor<i32>, %arg7: tensor<4x48xf32>, %arg8: tensor<32x48xf32>) -> (%14, %13, %arg8) {
// CHECK-NEXT{LITERAL}:       %7 = stablehlo.constant {value = dense<1>} : tensor<i32>  // -:12
// CHECK-NEXT{LITERAL}:       %8 = stablehlo.constant {value = dense<0>} : tensor<i32>  // -:13
// CHECK-NEXT{LITERAL}:       %9 = stablehlo.dynamic_slice %arg0, %arg6, %8, %8 {slice_sizes = (1, 4, 32)} : tensor<1x4x32xf32>  // -:14
// CHECK-NEXT{LITERAL}:       %10 = stablehlo.reshape %9 : tensor<4x32xf32>  // -:16
// CHECK-NEXT{LITERAL}:       %11 = stablehlo.dot_general %10, %arg8 {lhs_batching_dimensions = (), rhs_batching_dimensions = (), lhs_contracting_dimensions = (1,), rhs_contracting_dimensions = (0,)} : tensor<4x48xf32>  // -:17
// CHECK-NEXT{LITERAL}:       %12 = stablehlo.add %arg7, %11 : tensor<4x48xf32>  // -:19
// CHECK-NEXT{LITERAL}:       %13 = stablehlo.tanh %12 : tensor<4x48xf32>  // -:20
// CHECK-NEXT{LITERAL}:       %14 = stablehlo.add %arg6, %7 : tensor<i32>  // -:21
// CHECK-NEXT{LITERAL}:     }
// CHECK-NEXT{LITERAL}: }
