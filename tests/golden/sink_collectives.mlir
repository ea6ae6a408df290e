// RUN: jstitch opt %s --passes sink_collectives | filecheck %s
// The gradient of weights that turns share, over devices with parts of the batch: one sum behind the loop.

func.func @main(%x: tensor<9x4xf32>, %g: tensor<4xf32>) -> (tensor<4xf32>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %0:2 = stablehlo.while(%i = %zero, %s = %g) : tensor<i32>, tensor<4xf32>
  cond {
    %limit = stablehlo.constant dense<9> : tensor<i32>
    %more = stablehlo.compare LT, %i, %limit, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %one = stablehlo.constant dense<1> : tensor<i32>
    %first = stablehlo.constant dense<0> : tensor<i32>
    %part = stablehlo.dynamic_slice %x, %i, %first, sizes = [1, 4]
      : (tensor<9x4xf32>, tensor<i32>, tensor<i32>) -> tensor<1x4xf32>
    %all = "stablehlo.all_reduce"(%part) <{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %c = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %c : tensor<f32>
    }) : (tensor<1x4xf32>) -> tensor<1x4xf32>
    %now = stablehlo.reshape %all : (tensor<1x4xf32>) -> tensor<4xf32>
    %total = stablehlo.add %s, %now : tensor<4xf32>
    %next = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %next, %total : tensor<i32>, tensor<4xf32>
  }
  return %0#1 : tensor<4xf32>
}

// CHECK{LITERAL}: graph(%arg0: tensor<9x4xf32>, %arg1: tensor<4xf32>) -> (%14) {
// CHECK-NEXT{LITERAL}:   %0 = stablehlo.constant {value = dense<0>} : tensor<i32>  // -:5
// CHECK-NEXT{LITERAL}:   %1 = stablehlo.constant {value = dense<0.0>} : tensor<4xf32>  // -:6
// CHECK-NEXT{LITERAL}:   %2, %3 = stablehlo.while %0, %1 : tensor<i32>, tensor<4xf32>  // -:6
// CHECK-NEXT{LITERAL}:     region 0(%arg2: tensor<i32>, %arg3: tensor<4xf32>) -> (%5) {
// CHECK-NEXT{LITERAL}:       %4 = stablehlo.constant {value = dense<9>} : tensor<i32>  // -:8
// CHECK-NEXT{LITERAL}:       %5 = stablehlo.compare %arg2, %4 {compare_type = SIGNED, comparison_direction = LT} : tensor<i1>  // -:9
// CHECK-NEXT{LITERAL}:     }
// CHECK-NEXT{LITERAL}:     region 1(%arg4: tensor<i32>, %arg5: tensor<4xf32>) -> (%11, %10) {
// CHECK-NEXT{LITERAL}:       %6 = stablehlo.constant {value = dense<1>} : tensor<i32>  // -:12
// CHECK-NEXT{LITERAL}:       %7 = stablehlo.constant {value = dense<0>} : tensor<i32>  // -:13
// CHECK-NEXT{LITERAL}:       %8 = stablehlo.dynamic_slice %arg0, %arg4, %7 {slice_sizes = (1, 4)} : tensor<1x4xf32>  // -:14
// CHECK-NEXT{LITERAL}:       %9 = stablehlo.reshape %8 : tensor<4xf32>  // -:21
// CHECK-NEXT{LITERAL}:       %10 = stablehlo.add %arg5, %9 : tensor<4xf32>  // -:22
// CHECK-NEXT{LITERAL}:       %11 = stablehlo.add %arg4, %6 : tensor<i32>  // -:23
// CHECK-NEXT{LITERAL}:     }
// CHECK-NEXT{LITERAL}:   %12 = stablehlo.all_reduce %3 {replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, monoid = stablehlo.add} : tensor<4xf32>  // -:16
// CHECK-NEXT{LITERAL}:     region 0(%arg6: tensor<f32>, %arg7: tensor<f32>) -> (%13) {
// CHECK-NEXT{LITERAL}:       %13 = stablehlo.add %arg6, %arg7 : tensor<f32>  // -:18
// CHECK-NEXT{LITERAL}:     }
// CHECK-NEXT{LITERAL}:   %14 = stablehlo.add %arg1, %12 : tensor<4xf32>  // -:22
// CHECK-NEXT{LITERAL}: }
