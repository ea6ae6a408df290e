// RUN: jstitch opt %s --passes recompute_stacks | filecheck %s
// What one loop leaves for another, and is little work to make of what it leaves anyway, is made again where it is read.

func.func @main(%x: tensor<9x8xf32>, %u: tensor<9x8xf32>, %h: tensor<8xf32>) -> tensor<8xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %0:3 = stablehlo.while(%i = %zero, %gs = %u, %ds = %u) : tensor<i32>, tensor<9x8xf32>, tensor<9x8xf32>
  cond {
    %limit = stablehlo.constant dense<9> : tensor<i32>
    %more = stablehlo.compare LT, %i, %limit, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %one = stablehlo.constant dense<1> : tensor<i32>
    %first = stablehlo.constant dense<0> : tensor<i32>
    %part = stablehlo.dynamic_slice %x, %i, %first, sizes = [1, 8]
      : (tensor<9x8xf32>, tensor<i32>, tensor<i32>) -> tensor<1x8xf32>
    %g = stablehlo.tanh %part : tensor<1x8xf32>
    %ones = stablehlo.constant dense<1.0> : tensor<1x8xf32>
    %s = stablehlo.multiply %g, %g : tensor<1x8xf32>
    %d = stablehlo.subtract %ones, %s : tensor<1x8xf32>
    %a = stablehlo.dynamic_update_slice %gs, %g, %i, %first
      : (tensor<9x8xf32>, tensor<1x8xf32>, tensor<i32>, tensor<i32>) -> tensor<9x8xf32>
    %b = stablehlo.dynamic_update_slice %ds, %d, %i, %first
      : (tensor<9x8xf32>, tensor<1x8xf32>, tensor<i32>, tensor<i32>) -> tensor<9x8xf32>
    %next = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %next, %a, %b : tensor<i32>, tensor<9x8xf32>, tensor<9x8xf32>
  }
  %1:4 = stablehlo.while(%i = %zero, %gs = %0#1, %ds = %0#2, %c = %h)
    : tensor<i32>, tensor<9x8xf32>, tensor<9x8xf32>, tensor<8xf32>
  cond {
    %limit = stablehlo.constant dense<9> : tensor<i32>
    %more = stablehlo.compare LT, %i, %limit, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %one = stablehlo.constant dense<1> : tensor<i32>
    %last = stablehlo.constant dense<8> : tensor<i32>
    %first = stablehlo.constant dense<0> : tensor<i32>
    %back = stablehlo.subtract %last, %i : tensor<i32>
    %g = stablehlo.dynamic_slice %gs, %back, %first, sizes = [1, 8]
      : (tensor<9x8xf32>, tensor<i32>, tensor<i32>) -> tensor<1x8xf32>
    %d = stablehlo.dynamic_slice %ds, %back, %first, sizes = [1, 8]
      : (tensor<9x8xf32>, tensor<i32>, tensor<i32>) -> tensor<1x8xf32>
    %p = stablehlo.multiply %g, %d : tensor<1x8xf32>
    %q = stablehlo.reshape %p : (tensor<1x8xf32>) -> tensor<8xf32>
    %r = stablehlo.add %c, %q : tensor<8xf32>
    %next = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %next, %gs, %ds, %r : tensor<i32>, tensor<9x8xf32>, tensor<9x8xf32>, tensor<8xf32>
  }
  return %1#3 : tensor<8xf32>
}

// CHECK{LITERAL}: graph(%arg0: tensor<9x8xf32>, %arg1: tensor<9x8xf32>, %arg2: tensor<8xf32>) -> (%16) {
// CHECK-NEXT{LITERAL}:   %0 = stablehlo.constant {value = dense<0>} : tensor<i32>  // -:5
// CHECK-NEXT{LITERAL}:   %1, %2 = stablehlo.while %0, %arg1 : tensor<i32>, tensor<9x8xf32>  // -:6
// CHECK-NEXT{LITERAL}:     region 0(%arg3: tensor<i32>, %arg4: tensor<9x8xf32>) -> (%4) {
// CHECK-NEXT{LITERAL}:       %3 = stablehlo.constant {value = dense<9>} : tensor<i32>  // -:8
// CHECK-NEXT{LITERAL}:       %4 = stablehlo.compare %arg3, %3 {compare_type = SIGNED, comparison_direction = LT} : tensor<i1>  // -:9
// CHECK-NEXT{LITERAL}:     }
// CHECK-NEXT{LITERAL}:     region 1(%arg5: tensor<i32>, %arg6: tensor<9x8xf32>) -> (%13, %12) {
// CHECK-NEXT{LITERAL}:       %5 = stablehlo.constant {value = dense<1>} : tensor<i32>  // -:12
// CHECK-NEXT{LITERAL}:       %6 = stablehlo.constant {value = dense<0>} : tensor<i32>  // -:13
// CHECK-NEXT{LITERAL}:       %7 = stablehlo.dynamic_slice %arg0, %arg5, %6 {slice_sizes = (1, 8)} : tensor<1x8xf32>  // -:14
// CHECK-NEXT{LITERAL}:       %8 = stablehlo.tanh %7 : tensor<1x8xf32>  // -:16
// CHECK-NEXT{LITERAL}:       %9 = stablehlo.constant {value = dense<1.0>} : tensor<1x8xf32>  // -:17
// CHECK-NEXT{LITERAL}:       %10 = stablehlo.multiply %8, %8 : tensor<1x8xf32>  // -:18
// CHECK-NEXT{LITERAL}:       %11 = stablehlo.subtract %9, %10 : tensor<1x8xf32>  // -:19
// CHECK-NEXT{LITERAL}:       %12 = stablehlo.dynamic_update_slice %arg6, %8, %arg5, %6 : tensor<9x8xf32>  // -:20
// CHECK-NEXT{LITERAL}:       %13 = stablehlo.add %arg5, %5 : tensor<i32>  // -:24
// CHECK-NEXT{LITERAL}:     }
// CHECK-NEXT{LITERAL}:   %14, %15, %16 = stablehlo.while %0, %2, %arg2 : tensor<i32>, tensor<9x8xf32>, tensor<8xf32>  // -:27
// CHECK-NEXT{LITERAL}:     region 0(%arg7: tensor<i32>, %arg8: tensor<9x8xf32>, %arg9: tensor<8xf32>) -> (%18) {
// CHECK-NEXT{LITERAL}:       %17 = stablehlo.constant {value = dense<9>} : tensor<i32>  // -:30
// CHECK-NEXT{LITERAL}:       %18 = stablehlo.compare %arg7, %17 {compare_type = SIGNED, comparison_direction = LT} : tensor<i1>  // -:31
// CHECK-NEXT{LITERAL}:     }
// CHECK-NEXT{LITERAL}:     region 1(%arg10: tensor<i32>, %arg11: tensor<9x8xf32>, %arg12: tensor<8xf32>) -> (%34, %arg11, %33) {
// CHECK-NEXT{LITERAL}:       %19 = stablehlo.constant {value = dense<1>} : tensor<i32>  // -:34
// CHECK-NEXT{LITERAL}:       %20 = stablehlo.constant {value = dense<8>} : tensor<i32>  // -:35
// CHECK-NEXT{LITERAL}:       %21 = stablehlo.constant {value = dense<0>} : tensor<i32>  // -:36
// CHECK-NEXT{LITERAL}:       %22 = stablehlo.subtract %20, %arg10 : tensor<i32>  // -:37
// CHECK-NEXT{LITERAL}:       %23 = stablehlo.dynamic_slice %arg11, %22, %21 {slice_sizes = (1, 8)} : tensor<1x8xf32>  // -:38
// CHECK-NEXT{LITERAL}:       %24 = stablehlo.constant {value = dense<0>} : tensor<i32>  // -:40
// CHECK-NEXT{LITERAL}:       %25 = stablehlo.dynamic_slice %arg11, %22, %24 {slice_sizes = (1, 8)} : tensor<1x8xf32>  // -:40
// CHECK-NEXT{LITERAL}:       %26 = stablehlo.reshape %25 : tensor<1x8xf32>  // -:40
// CHECK-NEXT{LITERAL}:       %27 = stablehlo.constant {value = dense<1.0>} : tensor<1x8xf32>  // -:17
// CHECK-NEXT{LITERAL}:       %28 = stablehlo.multiply %26, %26 : tensor<1x8xf32>  // -:18
// CHECK-NEXT{LITERAL}:       %29 = stablehlo.subtract %27, %28 : tensor<1x8xf32>  // -:19
// CHECK-NEXT{LITERAL}:       %30 = stablehlo.reshape %29 : tensor<1x8xf32>  // -:40
// CHECK-NEXT{LITERAL}:       %31 = stablehlo.multiply %23, %30 : tensor<1x8xf32>  // -:42
// CHECK-NEXT{LITERAL}:       %32 = stablehlo.reshape %31 : tensor<8xf32>  // -:43
// CHECK-NEXT{LITERAL}:       %33 = stablehlo.add %arg12, %32 : tensor<8xf32>  // -:44
// CHECK-NEXT{LITERAL}:       %34 = stablehlo.add %arg10, %19 : tensor<i32>  // -:45
// CHECK-NEXT{LITERAL}:     }
// CHECK-NEXT{LITERAL}: }
