// RUN: jstitch opt %s --passes clone_broadcasts,block_variances | filecheck %s
// On a CPU: the variance of a large input's columns in blocks of rows that stay in the cache.

func.func @main(%x: tensor<4096x256xf32>) -> tensor<256xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %n = stablehlo.constant dense<4096.0> : tensor<256xf32>
  %s = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [0]
    : (tensor<4096x256xf32>, tensor<f32>) -> tensor<256xf32>
  %mean = stablehlo.divide %s, %n : tensor<256xf32>
  %mb = stablehlo.broadcast_in_dim %mean, dims = [1] : (tensor<256xf32>) -> tensor<4096x256xf32>
  %d = stablehlo.subtract %x, %mb : tensor<4096x256xf32>
  %q = stablehlo.multiply %d, %d : tensor<4096x256xf32>
  %v = stablehlo.reduce(%q init: %zero) applies stablehlo.add across dimensions = [0]
    : (tensor<4096x256xf32>, tensor<f32>) -> tensor<256xf32>
  %variance = stablehlo.divide %v, %n : tensor<256xf32>
  return %variance : tensor<256xf32>
}

// CHECK{LITERAL}: graph(%arg0: tensor<4096x256xf32>) -> (%20) {
// CHECK-NEXT{LITERAL}:   %0 = stablehlo.constant {value = dense<0.0>} : tensor<f32>  // -:5
// CHECK-NEXT{LITERAL}:   %1 = stablehlo.constant {value = dense<4096.0>} : tensor<256xf32>  // -:6
// CHECK-NEXT{LITERAL}:   %2 = stablehlo.reshape %arg0 {apart = True} : tensor<64x64x256xf32>
// CHECK-NEXT{LITERAL}:   %3 = stablehlo.reduce %2, %0 {dimensions = (1,), monoid = stablehlo.add} : tensor<64x256xf32>  // -:7
// CHECK-NEXT{LITERAL}:     region 0(%arg1: tensor<f32>, %arg2: tensor<f32>) -> (%4) {
// CHECK-NEXT{LITERAL}:       %4 = stablehlo.add %arg1, %arg2 : tensor<f32>  // -:7
// CHECK-NEXT{LITERAL}:     }
// CHECK-NEXT{LITERAL}:   %5 = stablehlo.reduce %3, %0 {dimensions = (0,), monoid = stablehlo.add} : tensor<256xf32>  // -:7
// CHECK-NEXT{LITERAL}:     region 0(%arg1: tensor<f32>, %arg2: tensor<f32>) -> (%4) {
// CHECK-NEXT{LITERAL}:       %4 = stablehlo.add %arg1, %arg2 : tensor<f32>  // -:7
// CHECK-NEXT{LITERAL}:     }
// CHECK-NEXT{LITERAL}:   %6 = stablehlo.divide %5, %1 : tensor<256xf32>  // -:9
// CHECK-NEXT{LITERAL}:   %7 = stablehlo.constant {value = dense<64.0>} : tensor<64x256xf32>
// CHECK-NEXT{LITERAL}:   %8 = stablehlo.divide %3, %7 : tensor<64x256xf32>
// CHECK-NEXT{LITERAL}:   %9 = stablehlo.broadcast_in_dim %8 {broadcast_dimensions = (0, 2)} : tensor<64x64x256xf32>
// CHECK-NEXT{LITERAL}:   %10 = stablehlo.subtract %2, %9 : tensor<64x64x256xf32>
// CHECK-NEXT{LITERAL}:   %11 = stablehlo.multiply %10, %10 : tensor<64x64x256xf32>
// CHECK-NEXT{LITERAL}:   %12 = stablehlo.reduce %11, %0 {dimensions = (1,), monoid = stablehlo.add} : tensor<64x256xf32>  // -:13
// CHECK-NEXT{LITERAL}:     region 0(%arg3: tensor<f32>, %arg4: tensor<f32>) -> (%13) {
// CHECK-NEXT{LITERAL}:       %13 = stablehlo.add %arg3, %arg4 : tensor<f32>  // -:13
// CHECK-NEXT{LITERAL}:     }
// CHECK-NEXT{LITERAL}:   %14 = stablehlo.broadcast_in_dim %6 {broadcast_dimensions = (1,)} : tensor<64x256xf32>
// CHECK-NEXT{LITERAL}:   %15 = stablehlo.subtract %8, %14 : tensor<64x256xf32>
// CHECK-NEXT{LITERAL}:   %16 = stablehlo.multiply %15, %15 : tensor<64x256xf32>
// CHECK-NEXT{LITERAL}:   %17 = stablehlo.multiply %7, %16 : tensor<64x256xf32>
// CHECK-NEXT{LITERAL}:   %18 = stablehlo.add %12, %17 : tensor<64x256xf32>
// CHECK-NEXT{LITERAL}:   %19 = stablehlo.reduce %18, %0 {dimensions = (0,), monoid = stablehlo.add} : tensor<256xf32>  // -:13
// CHECK-NEXT{LITERAL}:     region 0(%arg3: tensor<f32>, %arg4: tensor<f32>) -> (%13) {
// CHECK-NEXT{LITERAL}:       %13 = stablehlo.add %arg3, %arg4 : tensor<f32>  // -:13
// CHECK-NEXT{LITERAL}:     }
// CHECK-NEXT{LITERAL}:   %20 = stablehlo.divide %19, %1 : tensor<256xf32>  // -:15
// CHECK-NEXT{LITERAL}: }
