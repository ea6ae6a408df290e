// RUN: jstitch opt %s --passes clone_broadcasts,factor_sums | filecheck %s
// A factor that is the same all along a sum stands behind the sum.

func.func @main(%x: tensor<64x256xf32>, %s: tensor<64xf32>) -> tensor<64xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %b = stablehlo.broadcast_in_dim %s, dims = [0] : (tensor<64xf32>) -> tensor<64x256xf32>
  %p = stablehlo.multiply %x, %b : tensor<64x256xf32>
  %y = stablehlo.reduce(%p init: %zero) applies stablehlo.add across dimensions = [1]
    : (tensor<64x256xf32>, tensor<f32>) -> tensor<64xf32>
  return %y : tensor<64xf32>
}

// CHECK{LITERAL}: graph(%arg0: tensor<64x256xf32>, %arg1: tensor<64xf32>) -> (%4) {
// CHECK-NEXT{LITERAL}:   %0 = stablehlo.constant {value = dense<0.0>} : tensor<f32>  // -:5
// CHECK-NEXT{LITERAL}:   %1 = stablehlo.reduce %arg0, %0 {dimensions = (1,), monoid = stablehlo.add} : tensor<64xf32>  // -:8
// CHECK-NEXT{LITERAL}:     region 0(%arg2: tensor<f32>, %arg3: tensor<f32>) -> (%2) {
// CHECK-NEXT{LITERAL}:       %2 = stablehlo.add %arg2, %arg3 : tensor<f32>  // -:8
// CHECK-NEXT{LITERAL}:     }
// CHECK-NEXT{LITERAL}:   %3 = stablehlo.multiply %1, %arg1 : tensor<64xf32>
// CHECK-NEXT{LITERAL}:   %4 = stablehlo.reshape %3 : tensor<64xf32>
// CHECK-NEXT{LITERAL}: }
