// RUN: jstitch opt %s --passes clone_broadcasts,plan_layers,merge_patterns,hand_over --target h200 | filecheck %s
// The sum of squares reads what the first kernel makes; its user waits for a product of that in between.

func.func @main(%x: tensor<4096x1024xf32>, %w: tensor<1024x1024xf32>) -> tensor<4096x1024xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %p = stablehlo.tanh %x : tensor<4096x1024xf32>
  %q = stablehlo.dot_general %p, %w, contracting_dims = [1] x [0]
    : (tensor<4096x1024xf32>, tensor<1024x1024xf32>) -> tensor<4096x1024xf32>
  %g = stablehlo.multiply %p, %p : tensor<4096x1024xf32>
  %s = stablehlo.reduce(%g init: %zero) applies stablehlo.add across dimensions = [1]
    : (tensor<4096x1024xf32>, tensor<f32>) -> tensor<4096xf32>
  %sb = stablehlo.broadcast_in_dim %s, dims = [0] : (tensor<4096xf32>) -> tensor<4096x1024xf32>
  %r = stablehlo.multiply %q, %sb : tensor<4096x1024xf32>
  return %r : tensor<4096x1024xf32>
}

// CHECK{LITERAL}: frame 0
// CHECK-NEXT{LITERAL}: pattern 0 (plan_layers): 4 ops, 1 inputs, 2 outputs
// CHECK-NEXT{LITERAL}:   inputs   %arg0: tensor<4096x1024xf32>
// CHECK-NEXT{LITERAL}:   %0 = stablehlo.constant {value = dense<0.0>} : tensor<f32>  // -:5
// CHECK-NEXT{LITERAL}:   %1 = stablehlo.tanh %arg0 : tensor<4096x1024xf32>  // -:6
// CHECK-NEXT{LITERAL}:   %3 = stablehlo.multiply %1, %1 : tensor<4096x1024xf32>  // -:9
// CHECK-NEXT{LITERAL}:   %4 = stablehlo.reduce %3, %0 {dimensions = (1,), monoid = stablehlo.add} : tensor<4096xf32>  // -:10
// CHECK-NEXT{LITERAL}:   outputs  %1, %4
// CHECK-NEXT{LITERAL}: pattern 1 (plan_layers): 2 ops, 2 inputs, 1 outputs
// CHECK-NEXT{LITERAL}:   inputs   %4: tensor<4096xf32>, %2: tensor<4096x1024xf32>
// CHECK-NEXT{LITERAL}:   %6 = stablehlo.broadcast_in_dim %4 {broadcast_dimensions = (0,)} : tensor<4096x1024xf32>  // -:12
// CHECK-NEXT{LITERAL}:   %7 = stablehlo.multiply %2, %6 : tensor<4096x1024xf32>  // -:13
// CHECK-NEXT{LITERAL}:   outputs  %7
// CHECK-NEXT{LITERAL}: not fused
// CHECK-NEXT{LITERAL}:   %1 stablehlo.tanh -> %2 stablehlo.dot_general    alone: no other product's rows become its own within 100 ops: left to XLA's library
// CHECK-NEXT{LITERAL}:   %4 stablehlo.reduce -> %6 stablehlo.broadcast_in_dim    cycle: patterns that hold both would wait for each other
// CHECK-NEXT{LITERAL}:   %2 stablehlo.dot_general -> %7 stablehlo.multiply    alone: no other product's rows become its own within 100 ops: left to XLA's library
