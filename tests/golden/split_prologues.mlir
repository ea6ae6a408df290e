// RUN: jstitch opt %s --passes clone_broadcasts,plan_layers,split_prologues --target h200 | filecheck %s
// On a GPU: the power of a power of a number is made by a small kernel before, not in a phase of the large one.

func.func @main(%x: tensor<1024x512xf32>, %k: tensor<f32>) -> tensor<1024x512xf32> {
  %a = stablehlo.power %k, %k : tensor<f32>
  %b = stablehlo.power %a, %k : tensor<f32>
  %c = stablehlo.power %b, %k : tensor<f32>
  %d = stablehlo.power %c, %k : tensor<f32>
  %e = stablehlo.power %d, %k : tensor<f32>
  %eb = stablehlo.broadcast_in_dim %e, dims = [] : (tensor<f32>) -> tensor<1024x512xf32>
  %y = stablehlo.tanh %x : tensor<1024x512xf32>
  %z = stablehlo.multiply %y, %eb : tensor<1024x512xf32>
  return %z : tensor<1024x512xf32>
}

// CHECK{LITERAL}: frame 0
// CHECK-NEXT{LITERAL}: pattern 0 (split_prologues): 5 ops, 1 inputs, 1 outputs
// CHECK-NEXT{LITERAL}:   inputs   %arg1: tensor<f32>
// CHECK-NEXT{LITERAL}:   %0 = stablehlo.power %arg1, %arg1 : tensor<f32>  // -:5
// CHECK-NEXT{LITERAL}:   %1 = stablehlo.power %0, %arg1 : tensor<f32>  // -:6
// CHECK-NEXT{LITERAL}:   %2 = stablehlo.power %1, %arg1 : tensor<f32>  // -:7
// CHECK-NEXT{LITERAL}:   %3 = stablehlo.power %2, %arg1 : tensor<f32>  // -:8
// CHECK-NEXT{LITERAL}:   %4 = stablehlo.power %3, %arg1 : tensor<f32>  // -:9
// CHECK-NEXT{LITERAL}:   outputs  %4
// CHECK-NEXT{LITERAL}: pattern 1 (plan_layers): 3 ops, 2 inputs, 1 outputs
// CHECK-NEXT{LITERAL}:   inputs   %4: tensor<f32>, %arg0: tensor<1024x512xf32>
// CHECK-NEXT{LITERAL}:   %5 = stablehlo.broadcast_in_dim %4 {broadcast_dimensions = ()} : tensor<1024x512xf32>  // -:10
// CHECK-NEXT{LITERAL}:   %6 = stablehlo.tanh %arg0 : tensor<1024x512xf32>  // -:11
// CHECK-NEXT{LITERAL}:   %7 = stablehlo.multiply %6, %5 : tensor<1024x512xf32>  // -:12
// CHECK-NEXT{LITERAL}:   outputs  %7
// CHECK-NEXT{LITERAL}: not fused
// CHECK-NEXT{LITERAL}:   %4 stablehlo.power -> %5 stablehlo.broadcast_in_dim    prologue: all of the consumer would wait for these few numbers, one launch more
