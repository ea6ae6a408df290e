// RUN: jstitch opt %s --passes plan_layers,pack_patterns | filecheck %s
// An optimizer's updates of two parameters share one kernel.

func.func @main(%p: tensor<64xf32>, %g: tensor<64xf32>, %q: tensor<32x8xf32>, %h: tensor<32x8xf32>)
    -> (tensor<64xf32>, tensor<32x8xf32>) {
  %rate = stablehlo.constant dense<1.0e-3> : tensor<64xf32>
  %step = stablehlo.multiply %g, %rate : tensor<64xf32>
  %a = stablehlo.subtract %p, %step : tensor<64xf32>
  %rate2 = stablehlo.constant dense<1.0e-3> : tensor<32x8xf32>
  %step2 = stablehlo.multiply %h, %rate2 : tensor<32x8xf32>
  %b = stablehlo.subtract %q, %step2 : tensor<32x8xf32>
  return %a, %b : tensor<64xf32>, tensor<32x8xf32>
}

// CHECK{LITERAL}: frame 0
// CHECK-NEXT{LITERAL}: pattern 0 (pack_patterns): 6 ops, 4 inputs, 2 outputs
// CHECK-NEXT{LITERAL}:   inputs   %arg1: tensor<64xf32>, %arg0: tensor<64xf32>, %arg3: tensor<32x8xf32>, %arg2: tensor<32x8xf32>
// CHECK-NEXT{LITERAL}:   %0 = stablehlo.constant {value = dense<0.0010000000474974513>} : tensor<64xf32>  // -:6
// CHECK-NEXT{LITERAL}:   %1 = stablehlo.multiply %arg1, %0 : tensor<64xf32>  // -:7
// CHECK-NEXT{LITERAL}:   %2 = stablehlo.subtract %arg0, %1 : tensor<64xf32>  // -:8
// CHECK-NEXT{LITERAL}:   %3 = stablehlo.constant {value = dense<0.0010000000474974513>} : tensor<32x8xf32>  // -:9
// CHECK-NEXT{LITERAL}:   %4 = stablehlo.multiply %arg3, %3 : tensor<32x8xf32>  // -:10
// CHECK-NEXT{LITERAL}:   %5 = stablehlo.subtract %arg2, %4 : tensor<32x8xf32>  // -:11
// CHECK-NEXT{LITERAL}:   outputs  %2, %5
