// RUN: jstitch opt %s --passes clone_broadcasts,plan_ilp | filecheck %s
// The integer program's choice for a softmax is the whole of it.

func.func @main(%x: tensor<512x768xf32>) -> tensor<512x768xf32> {
  %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %m = stablehlo.reduce(%x init: %low) applies stablehlo.maximum across dimensions = [1]
    : (tensor<512x768xf32>, tensor<f32>) -> tensor<512xf32>
  %mb = stablehlo.broadcast_in_dim %m, dims = [0] : (tensor<512xf32>) -> tensor<512x768xf32>
  %d = stablehlo.subtract %x, %mb : tensor<512x768xf32>
  %e = stablehlo.exponential %d : tensor<512x768xf32>
  %s = stablehlo.reduce(%e init: %zero) applies stablehlo.add across dimensions = [1]
    : (tensor<512x768xf32>, tensor<f32>) -> tensor<512xf32>
  %sb = stablehlo.broadcast_in_dim %s, dims = [0] : (tensor<512xf32>) -> tensor<512x768xf32>
  %y = stablehlo.divide %e, %sb : tensor<512x768xf32>
  return %y : tensor<512x768xf32>
}

// CHECK{LITERAL}: frame 0
// CHECK-NEXT{LITERAL}: pattern 0 (plan_ilp): 9 ops, 1 inputs, 1 outputs
// CHECK-NEXT{LITERAL}:   inputs   %arg0: tensor<512x768xf32>
// CHECK-NEXT{LITERAL}:   %0 = stablehlo.constant {value = dense<-inf>} : tensor<f32>  // -:5
// CHECK-NEXT{LITERAL}:   %1 = stablehlo.constant {value = dense<0.0>} : tensor<f32>  // -:6
// CHECK-NEXT{LITERAL}:   %2 = stablehlo.reduce %arg0, %0 {dimensions = (1,), monoid = stablehlo.maximum} : tensor<512xf32>  // -:7
// CHECK-NEXT{LITERAL}:   %4 = stablehlo.broadcast_in_dim %2 {broadcast_dimensions = (0,)} : tensor<512x768xf32>  // -:9
// CHECK-NEXT{LITERAL}:   %5 = stablehlo.subtract %arg0, %4 : tensor<512x768xf32>  // -:10
// CHECK-NEXT{LITERAL}:   %6 = stablehlo.exponential %5 : tensor<512x768xf32>  // -:11
// CHECK-NEXT{LITERAL}:   %7 = stablehlo.reduce %6, %1 {dimensions = (1,), monoid = stablehlo.add} : tensor<512xf32>  // -:12
// CHECK-NEXT{LITERAL}:   %9 = stablehlo.broadcast_in_dim %7 {broadcast_dimensions = (0,)} : tensor<512x768xf32>  // -:14
// CHECK-NEXT{LITERAL}:   %10 = stablehlo.divide %6, %9 : tensor<512x768xf32>  // -:15
// CHECK-NEXT{LITERAL}:   outputs  %10
