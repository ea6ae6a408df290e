// RUN: jstitch opt %s --passes clone_broadcasts,plan_layers,recompute_outputs --target h200 | filecheck %s
// On a GPU: the second kernel computes the tanh again, and the first does not write it.

func.func @main(%x: tensor<4096x4096xf32>) -> (tensor<4096xf32>, tensor<4096xf32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %a = stablehlo.negate %x : tensor<4096x4096xf32>
  %rows = stablehlo.reduce(%a init: %zero) applies stablehlo.add across dimensions = [1]
    : (tensor<4096x4096xf32>, tensor<f32>) -> tensor<4096xf32>
  %b = stablehlo.custom_call @opaque(%rows) : (tensor<4096xf32>) -> tensor<4096xf32>
  %bb = stablehlo.broadcast_in_dim %b, dims = [0] : (tensor<4096xf32>) -> tensor<4096x4096xf32>
  %c = stablehlo.multiply %a, %bb : tensor<4096x4096xf32>
  %sums = stablehlo.reduce(%c init: %zero) applies stablehlo.add across dimensions = [1]
    : (tensor<4096x4096xf32>, tensor<f32>) -> tensor<4096xf32>
  return %rows, %sums : tensor<4096xf32>, tensor<4096xf32>
}

// CHECK{LITERAL}: frame 0
// CHECK-NEXT{LITERAL}: pattern 0 (plan_layers): 5 ops, 2 inputs, 1 outputs
// CHECK-NEXT{LITERAL}:   inputs   %arg0: tensor<4096x4096xf32>, %4: tensor<4096xf32>
// CHECK-NEXT{LITERAL}:   %0 = stablehlo.constant {value = dense<0.0>} : tensor<f32>  // -:5
// CHECK-NEXT{LITERAL}:   %5 = stablehlo.negate %arg0 : tensor<4096x4096xf32>  // -:6
// CHECK-NEXT{LITERAL}:   %6 = stablehlo.broadcast_in_dim %4 {broadcast_dimensions = (0,)} : tensor<4096x4096xf32>  // -:10
// CHECK-NEXT{LITERAL}:   %7 = stablehlo.multiply %5, %6 : tensor<4096x4096xf32>  // -:11
// CHECK-NEXT{LITERAL}:   %8 = stablehlo.reduce %7, %0 {dimensions = (1,), monoid = stablehlo.add} : tensor<4096xf32>  // -:12
// CHECK-NEXT{LITERAL}:   outputs  %8
// CHECK-NEXT{LITERAL}: pattern 1 (plan_layers): 3 ops, 1 inputs, 1 outputs
// CHECK-NEXT{LITERAL}:   inputs   %arg0: tensor<4096x4096xf32>
// CHECK-NEXT{LITERAL}:   %0 = stablehlo.constant {value = dense<0.0>} : tensor<f32>  // -:5
// CHECK-NEXT{LITERAL}:   %1 = stablehlo.negate %arg0 : tensor<4096x4096xf32>  // -:6
// CHECK-NEXT{LITERAL}:   %2 = stablehlo.reduce %1, %0 {dimensions = (1,), monoid = stablehlo.add} : tensor<4096xf32>  // -:7
// CHECK-NEXT{LITERAL}:   outputs  %2
// CHECK-NEXT{LITERAL}: not fused
// CHECK-NEXT{LITERAL}:   %2 stablehlo.reduce -> %4 stablehlo.custom_call    effect: stablehlo.custom_call has, or may have, an effect: left to XLA
// CHECK-NEXT{LITERAL}:   %4 stablehlo.custom_call -> %6 stablehlo.broadcast_in_dim    effect: stablehlo.custom_call has, or may have, an effect: left to XLA
