// RUN: jstitch opt %s --passes clone_broadcasts,factor_sums | filecheck %s
// A factor that is the same all along a sum, and whose range is known, stands behind the sum.

func.func @main(%x: tensor<64x256xf32>, %s: tensor<64xf32>) -> tensor<64xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %least = stablehlo.constant dense<1.0e-5> : tensor<64xf32>
  %square = stablehlo.multiply %s, %s : tensor<64xf32>
  %more = stablehlo.add %square, %least : tensor<64xf32>
  %root = stablehlo.rsqrt %more : tensor<64xf32>
  %b = stablehlo.broadcast_in_dim %root, dims = [0] : (tensor<64xf32>) -> tensor<64x256xf32>
  %p = stablehlo.multiply %x, %b : tensor<64x256xf32>
  %y = stablehlo.reduce(%p init: %zero) applies stablehlo.add across dimensions = [1]
    : (tensor<64x256xf32>, tensor<f32>) -> tensor<64xf32>
  return %y : tensor<64xf32>
}

// CHECK{LITERAL}: graph(%arg0: tensor<64x256xf32>, %arg1: tensor<64xf32>) -> (%8) {
// CHECK-NEXT{LITERAL}:   %0 = stablehlo.constant {value = dense<0.0>} : tensor<f32>  // -:5
// CHECK-NEXT{LITERAL}:   %1 = stablehlo.constant {value = dense<9.999999747378752e-06>} : tensor<64xf32>  // -:6
// CHECK-NEXT{LITERAL}:   %2 = stablehlo.multiply %arg1, %arg1 : tensor<64xf32>  // -:7
// CHECK-NEXT{LITERAL}:   %3 = stablehlo.add %2, %1 : tensor<64xf32>  // -:8
// CHECK-NEXT{LITERAL}:   %4 = stablehlo.rsqrt %3 : tensor<64xf32>  // -:9
// CHECK-NEXT{LITERAL}:   %5 = stablehlo.reduce %arg0, %0 {dimensions = (1,), monoid = stablehlo.add} : tensor<64xf32>  // -:12
// CHECK-NEXT{LITERAL}:     region 0(%arg2: tensor<f32>, %arg3: tensor<f32>) -> (%6) {
// CHECK-NEXT{LITERAL}:       %6 = stablehlo.add %arg2, %arg3 : tensor<f32>  // -:12
// CHECK-NEXT{LITERAL}:     }
// CHECK-NEXT{LITERAL}:   %7 = stablehlo.multiply %5, %4 : tensor<64xf32>  // -:12
// CHECK-NEXT{LITERAL}:   %8 = stablehlo.reshape %7 : tensor<64xf32>  // -:12
// CHECK-NEXT{LITERAL}: }
