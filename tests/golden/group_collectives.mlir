// RUN: jstitch opt %s --passes group_collectives | filecheck %s
// Two sums over all devices that do not wait for each other are one op; the third waits for the first.

func.func @main(%a: tensor<4xf32>, %b: tensor<8xf32>) -> (tensor<4xf32>, tensor<8xf32>, tensor<4xf32>) {
  %0 = "stablehlo.all_reduce"(%a) <{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %s = stablehlo.add %x, %y : tensor<f32>
    stablehlo.return %s : tensor<f32>
  }) : (tensor<4xf32>) -> tensor<4xf32>
  %t = stablehlo.tanh %0 : tensor<4xf32>
  %e = stablehlo.exponential %b : tensor<8xf32>
  %1 = "stablehlo.all_reduce"(%e) <{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %s = stablehlo.add %x, %y : tensor<f32>
    stablehlo.return %s : tensor<f32>
  }) : (tensor<8xf32>) -> tensor<8xf32>
  %2 = "stablehlo.all_reduce"(%t) <{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %s = stablehlo.add %x, %y : tensor<f32>
    stablehlo.return %s : tensor<f32>
  }) : (tensor<4xf32>) -> tensor<4xf32>
  return %0, %1, %2 : tensor<4xf32>, tensor<8xf32>, tensor<4xf32>
}

// CHECK{LITERAL}: graph(%arg0: tensor<4xf32>, %arg1: tensor<8xf32>) -> (%1, %2, %8) {
// CHECK-NEXT{LITERAL}:   %0 = stablehlo.exponential %arg1 : tensor<8xf32>  // -:11
// CHECK-NEXT{LITERAL}:   %1, %2 = jstitch.collectives %arg0, %0 : tensor<4xf32>, tensor<8xf32>  // -:12
// CHECK-NEXT{LITERAL}:     region 0(%arg2: tensor<4xf32>, %arg3: tensor<8xf32>) -> (%3, %5) {
// CHECK-NEXT{LITERAL}:       %3 = stablehlo.all_reduce %arg2 {replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, monoid = stablehlo.add} : tensor<4xf32>  // -:5
// CHECK-NEXT{LITERAL}:         region 0(%arg4: tensor<f32>, %arg5: tensor<f32>) -> (%4) {
// CHECK-NEXT{LITERAL}:           %4 = stablehlo.add %arg4, %arg5 : tensor<f32>  // -:7
// CHECK-NEXT{LITERAL}:         }
// CHECK-NEXT{LITERAL}:       %5 = stablehlo.all_reduce %arg3 {replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, monoid = stablehlo.add} : tensor<8xf32>  // -:12
// CHECK-NEXT{LITERAL}:         region 0(%arg6: tensor<f32>, %arg7: tensor<f32>) -> (%6) {
// CHECK-NEXT{LITERAL}:           %6 = stablehlo.add %arg6, %arg7 : tensor<f32>  // -:14
// CHECK-NEXT{LITERAL}:         }
// CHECK-NEXT{LITERAL}:     }
// CHECK-NEXT{LITERAL}:   %7 = stablehlo.tanh %1 : tensor<4xf32>  // -:10
// CHECK-NEXT{LITERAL}:   %8 = stablehlo.all_reduce %7 {replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, monoid = stablehlo.add} : tensor<4xf32>  // -:17
// CHECK-NEXT{LITERAL}:     region 0(%arg8: tensor<f32>, %arg9: tensor<f32>) -> (%9) {
// CHECK-NEXT{LITERAL}:       %9 = stablehlo.add %arg8, %arg9 : tensor<f32>  // -:19
// CHECK-NEXT{LITERAL}:     }
// CHECK-NEXT{LITERAL}: }
