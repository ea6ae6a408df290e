// RUN: jstitch opt %s --passes plan_layers,trim_patterns | filecheck %s
// An output that only moves data is XLA's to make.

func.func @main(%x: tensor<256x64xf32>, %w: tensor<256x256xf32>) -> (tensor<64x256xf32>, tensor<256x64xf32>) {
  %a = stablehlo.tanh %x : tensor<256x64xf32>
  %t = stablehlo.transpose %a, dims = [1, 0] : (tensor<256x64xf32>) -> tensor<64x256xf32>
  %p = stablehlo.dot_general %t, %w, contracting_dims = [1] x [0]
    : (tensor<64x256xf32>, tensor<256x256xf32>) -> tensor<64x256xf32>
  return %p, %a : tensor<64x256xf32>, tensor<256x64xf32>
}

// CHECK{LITERAL}: frame 0
// CHECK-NEXT{LITERAL}: pattern 0 (plan_layers): 1 ops, 1 inputs, 1 outputs
// CHECK-NEXT{LITERAL}:   inputs   %arg0: tensor<256x64xf32>
// CHECK-NEXT{LITERAL}:   %0 = stablehlo.tanh %arg0 : tensor<256x64xf32>  // -:5
// CHECK-NEXT{LITERAL}:   outputs  %0
// CHECK-NEXT{LITERAL}: not fused
// CHECK-NEXT{LITERAL}:   %0 stablehlo.tanh -> %1 stablehlo.transpose    trim: only moves data that is in memory anyway
// CHECK-NEXT{LITERAL}:   %1 stablehlo.transpose -> %2 stablehlo.dot_general    alone: no other product's rows become its own within 100 ops: left to XLA's library
