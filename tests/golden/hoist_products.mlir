// RUN: jstitch opt %s --passes hoist_products --target h200 | filecheck %s
// On a GPU: what each turn multiplies of what it is given is one product of all turns, before the loop.

func.func @main(%x: tensor<9x4x8xf32>, %w: tensor<8x16xf32>, %h: tensor<4x16xf32>) -> tensor<4x16xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %0:2 = stablehlo.while(%i = %zero, %c = %h) : tensor<i32>, tensor<4x16xf32>
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
    %z = stablehlo.dot_general %now, %w, contracting_dims = [1] x [0]
      : (tensor<4x8xf32>, tensor<8x16xf32>) -> tensor<4x16xf32>
    %a = stablehlo.add %c, %z : tensor<4x16xf32>
    %b = stablehlo.tanh %a : tensor<4x16xf32>
    %next = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %next, %b : tensor<i32>, tensor<4x16xf32>
  }
  return %0#1 : tensor<4x16xf32>
}

// CHECK{LITERAL}: graph(%arg0: tensor<9x4x8xf32>, %arg1: tensor<8x16xf32>, %arg2: tensor<4x16xf32>) -> (%4) {
// CHECK-NEXT{LITERAL}:   %0 = stablehlo.constant {value = dense<0>} : tensor<i32>  // -:5
// CHECK-NEXT{LITERAL}:   %1 = stablehlo.reshape %arg0 : tensor<9x4x8xf32>  // -:17
// CHECK-NEXT{LITERAL}:   %2 = stablehlo.dot_general %1, %arg1 {lhs_batching_dimensions = (), rhs_batching_dimensions = (), lhs_contracting_dimensions = (2,), rhs_contracting_dimensions = (0,)} : tensor<9x4x16xf32>  // -:17
// CHECK-NEXT{LITERAL}:   %3, %4, %5 = stablehlo.while %0, %arg2, %2 : tensor<i32>, tensor<4x16xf32>, tensor<9x4x16xf32>  // -:6
// CHECK-NEXT{LITERAL}:     region 0(%arg3: tensor<i32>, %arg4: tensor<4x16xf32>, %arg5: tensor<9x4x16xf32>) -> (%7) {
// CHECK-NEXT{LITERAL}:       %6 = stablehlo.constant {value = dense<9>} : tensor<i32>  // -:8
// CHECK-NEXT{LITERAL}:       %7 = stablehlo.compare %arg3, %6 {compare_type = SIGNED, comparison_direction = LT} : tensor<i1>  // -:9
// CHECK-NEXT{LITERAL}:     }
// CHECK-NEXT{LITERAL}:     region 1(%arg6: tensor<i32>, %arg7: tensor<4x16xf32>, %arg8: tensor<9x4x16xf32>) -> (%17, %16, %arg8) {
// CHECK-NEXT{LITERAL}:       %8 = stablehlo.constant {value = dense<1>} : tensor<i32>  // -:12
// CHECK-NEXT{LITERAL}:       %9 = stablehlo.constant {value = dense<0>} : tensor<i32>  // -:13
// CHECK-NEXT{LITERAL}:       %10 = stablehlo.dynamic_slice %arg0, %arg6, %9, %9 {slice_sizes = (1, 4, 8)} : tensor<1x4x8xf32>  // -:14
// CHECK-NEXT{LITERAL}:       %11 = stablehlo.reshape %10 : tensor<4x8xf32>  // -:16
// CHECK-NEXT{LITERAL}:       %12 = stablehlo.constant {value = dense<0>} : tensor<i32>  // -:17
// CHECK-NEXT{LITERAL}:       %13 = stablehlo.dynamic_slice %arg8, %arg6, %12, %12 {slice_sizes = (1, 4, 16)} : tensor<1x4x16xf32>  // -:17
// CHECK-NEXT{LITERAL}:       %14 = stablehlo.reshape %13 : tensor<4x16xf32>  // -:17
// CHECK-NEXT{LITERAL}:       %15 = stablehlo.add %arg7, %14 : tensor<4x16xf32>  // -:19
// CHECK-NEXT{LITERAL}:       %16 = stablehlo.tanh %15 : tensor<4x16xf32>  // -:20
// CHECK-NEXT{LITERAL}:       %17 = stablehlo.add %arg6, %8 : tensor<i32>  // -:21
// CHECK-NEXT{LITERAL}:     }
// CHECK-NEXT{LITERAL}: }
