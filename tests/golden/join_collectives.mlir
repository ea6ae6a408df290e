// RUN: jstitch opt %s --passes join_collectives | filecheck %s
// The gradient of what three products read, of which devices have parts: one sum over devices. What is read
// elsewhere, too, and what other devices add up, stays a sum of its own.

func.func @main(%x: tensor<4xf32>, %y: tensor<4xf32>, %z: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
  %0 = "stablehlo.all_reduce"(%x) <{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %c = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %c : tensor<f32>
  }) : (tensor<4xf32>) -> tensor<4xf32>
  %1 = "stablehlo.all_reduce"(%y) <{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %c = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %c : tensor<f32>
  }) : (tensor<4xf32>) -> tensor<4xf32>
  %2 = "stablehlo.all_reduce"(%z) <{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %c = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %c : tensor<f32>
  }) : (tensor<4xf32>) -> tensor<4xf32>
  %3 = stablehlo.add %0, %1 : tensor<4xf32>
  %4 = stablehlo.add %3, %2 : tensor<4xf32>
  %5 = "stablehlo.all_reduce"(%x) <{replica_groups = dense<[[0], [1]]> : tensor<2x1xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %c = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %c : tensor<f32>
  }) : (tensor<4xf32>) -> tensor<4xf32>
  %6 = stablehlo.tanh %y : tensor<4xf32>
  %7 = "stablehlo.all_reduce"(%6) <{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %c = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %c : tensor<f32>
  }) : (tensor<4xf32>) -> tensor<4xf32>
  %8 = stablehlo.add %5, %7 : tensor<4xf32>
  return %4, %8, %7 : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}

// CHECK{LITERAL}: graph(%arg0: tensor<4xf32>, %arg1: tensor<4xf32>, %arg2: tensor<4xf32>) -> (%9, %15, %13) {
// CHECK-NEXT{LITERAL}:   %0 = stablehlo.all_reduce %arg0 {replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, monoid = stablehlo.add} : tensor<4xf32>  // -:6
// CHECK-NEXT{LITERAL}:     region 0(%arg3: tensor<f32>, %arg4: tensor<f32>) -> (%1) {
// CHECK-NEXT{LITERAL}:       %1 = stablehlo.add %arg3, %arg4 : tensor<f32>  // -:8
// CHECK-NEXT{LITERAL}:     }
// CHECK-NEXT{LITERAL}:   %2 = stablehlo.all_reduce %arg1 {replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, monoid = stablehlo.add} : tensor<4xf32>  // -:11
// CHECK-NEXT{LITERAL}:     region 0(%arg5: tensor<f32>, %arg6: tensor<f32>) -> (%3) {
// CHECK-NEXT{LITERAL}:       %3 = stablehlo.add %arg5, %arg6 : tensor<f32>  // -:13
// CHECK-NEXT{LITERAL}:     }
// CHECK-NEXT{LITERAL}:   %4 = stablehlo.all_reduce %arg2 {replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, monoid = stablehlo.add} : tensor<4xf32>  // -:16
// CHECK-NEXT{LITERAL}:     region 0(%arg7: tensor<f32>, %arg8: tensor<f32>) -> (%5) {
// CHECK-NEXT{LITERAL}:       %5 = stablehlo.add %arg7, %arg8 : tensor<f32>  // -:18
// CHECK-NEXT{LITERAL}:     }
// CHECK-NEXT{LITERAL}:   %6 = stablehlo.add %arg0, %arg1 : tensor<4xf32>  // -:21
// CHECK-NEXT{LITERAL}:   %7 = stablehlo.all_reduce %6 {replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, monoid = stablehlo.add} : tensor<4xf32>  // -:6
// CHECK-NEXT{LITERAL}:     region 0(%arg3: tensor<f32>, %arg4: tensor<f32>) -> (%1) {
// CHECK-NEXT{LITERAL}:       %1 = stablehlo.add %arg3, %arg4 : tensor<f32>  // -:8
// CHECK-NEXT{LITERAL}:     }
// CHECK-NEXT{LITERAL}:   %8 = stablehlo.add %6, %arg2 : tensor<4xf32>  // -:22
// CHECK-NEXT{LITERAL}:   %9 = stablehlo.all_reduce %8 {replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, monoid = stablehlo.add} : tensor<4xf32>  // -:6
// CHECK-NEXT{LITERAL}:     region 0(%arg3: tensor<f32>, %arg4: tensor<f32>) -> (%1) {
// CHECK-NEXT{LITERAL}:       %1 = stablehlo.add %arg3, %arg4 : tensor<f32>  // -:8
// CHECK-NEXT{LITERAL}:     }
// CHECK-NEXT{LITERAL}:   %10 = stablehlo.all_reduce %arg0 {replica_groups = dense<[[0], [1]]> : tensor<2x1xi64>, monoid = stablehlo.add} : tensor<4xf32>  // -:23
// CHECK-NEXT{LITERAL}:     region 0(%arg9: tensor<f32>, %arg10: tensor<f32>) -> (%11) {
// CHECK-NEXT{LITERAL}:       %11 = stablehlo.add %arg9, %arg10 : tensor<f32>  // -:25
// CHECK-NEXT{LITERAL}:     }
// CHECK-NEXT{LITERAL}:   %12 = stablehlo.tanh %arg1 : tensor<4xf32>  // -:28
// CHECK-NEXT{LITERAL}:   %13 = stablehlo.all_reduce %12 {replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, monoid = stablehlo.add} : tensor<4xf32>  // -:29
// CHECK-NEXT{LITERAL}:     region 0(%arg11: tensor<f32>, %arg12: tensor<f32>) -> (%14) {
// CHECK-NEXT{LITERAL}:       %14 = stablehlo.add %arg11, %arg12 : tensor<f32>  // -:31
// CHECK-NEXT{LITERAL}:     }
// CHECK-NEXT{LITERAL}:   %15 = stablehlo.add %10, %13 : tensor<4xf32>  // -:34
// CHECK-NEXT{LITERAL}: }
