// RUN: jstitch opt %s --passes plan_layers,choose_schedules | filecheck %s
// Every schedule that the root can have is looked at; the maximum's and the sum's follow from it.

func.func @main(%x: tensor<512x1024xf32>) -> tensor<512x1024xf32> {
  %least = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %m = stablehlo.reduce(%x init: %least) applies stablehlo.maximum across dimensions = [0]
    : (tensor<512x1024xf32>, tensor<f32>) -> tensor<1024xf32>
  %mb = stablehlo.broadcast_in_dim %m, dims = [1] : (tensor<1024xf32>) -> tensor<512x1024xf32>
  %d = stablehlo.subtract %x, %mb : tensor<512x1024xf32>
  %e = stablehlo.exponential %d : tensor<512x1024xf32>
  %s = stablehlo.reduce(%e init: %zero) applies stablehlo.add across dimensions = [0]
    : (tensor<512x1024xf32>, tensor<f32>) -> tensor<1024xf32>
  %sb = stablehlo.broadcast_in_dim %s, dims = [1] : (tensor<1024xf32>) -> tensor<512x1024xf32>
  %y = stablehlo.divide %e, %sb : tensor<512x1024xf32>
  return %y : tensor<512x1024xf32>
}

// CHECK{LITERAL}: frame 0
// CHECK-NEXT{LITERAL}: pattern 0 (plan_layers): 9 ops, 1 inputs, 1 outputs
// CHECK-NEXT{LITERAL}:   inputs   %arg0: tensor<512x1024xf32>
// CHECK-NEXT{LITERAL}:   %0 = stablehlo.constant {value = dense<-inf>} : tensor<f32>  // -:5
// CHECK-NEXT{LITERAL}:   %1 = stablehlo.constant {value = dense<0.0>} : tensor<f32>  // -:6
// CHECK-NEXT{LITERAL}:   %2 = stablehlo.reduce %arg0, %0 {dimensions = (0,), monoid = stablehlo.maximum} : tensor<1024xf32>  // -:7
// CHECK-NEXT{LITERAL}:   %4 = stablehlo.broadcast_in_dim %2 {broadcast_dimensions = (1,)} : tensor<512x1024xf32>  // -:9
// CHECK-NEXT{LITERAL}:   %5 = stablehlo.subtract %arg0, %4 : tensor<512x1024xf32>  // -:10
// CHECK-NEXT{LITERAL}:   %6 = stablehlo.exponential %5 : tensor<512x1024xf32>  // -:11
// CHECK-NEXT{LITERAL}:   %7 = stablehlo.reduce %6, %1 {dimensions = (0,), monoid = stablehlo.add} : tensor<1024xf32>  // -:12
// CHECK-NEXT{LITERAL}:   %9 = stablehlo.broadcast_in_dim %7 {broadcast_dimensions = (1,)} : tensor<512x1024xf32>  // -:14
// CHECK-NEXT{LITERAL}:   %10 = stablehlo.divide %6, %9 : tensor<512x1024xf32>  // -:15
// CHECK-NEXT{LITERAL}:   outputs  %10
// CHECK-NEXT{LITERAL}:   wanted   reduce_0[THREAD, GRID_2-THREAD_512-THREAD]S;
// CHECK-NEXT{LITERAL}:   wanted   exponential_0[THREAD, GRID_2-THREAD_512-THREAD]S;
// CHECK-NEXT{LITERAL}:   wanted   reduce_1[THREAD, GRID_2-THREAD_512-THREAD]S;
// CHECK-NEXT{LITERAL}:   wanted   divide_0[THREAD, GRID_2-THREAD_512-THREAD];
