// RUN: jstitch opt %s --passes sum_in_blocks | filecheck %s
// Long columns, each in blocks of a dimension, or with a rest where no block divides them; and columns so few that
// the first of all blocks are added up first.

func.func @main(%x: tensor<8x64x64x40xf32>, %y: tensor<3x1009x20xf32>, %z: tensor<5000x12x10xf32>)
    -> (tensor<8x40xf32>, tensor<3x20xf32>, tensor<10xf32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %lowest = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %a = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [1, 2]
    : (tensor<8x64x64x40xf32>, tensor<f32>) -> tensor<8x40xf32>
  %b = stablehlo.reduce(%y init: %zero) applies stablehlo.add across dimensions = [1]
    : (tensor<3x1009x20xf32>, tensor<f32>) -> tensor<3x20xf32>
  %c = stablehlo.reduce(%z init: %lowest) applies stablehlo.maximum across dimensions = [0, 1]
    : (tensor<5000x12x10xf32>, tensor<f32>) -> tensor<10xf32>
  return %a, %b, %c : tensor<8x40xf32>, tensor<3x20xf32>, tensor<10xf32>
}

// CHECK{LITERAL}: graph(%arg0: tensor<8x64x64x40xf32>, %arg1: tensor<3x1009x20xf32>, %arg2: tensor<5000x12x10xf32>) -> (%5, %15, %19) {
// CHECK-NEXT{LITERAL}:   %0 = stablehlo.constant {value = dense<0.0>} : tensor<f32>  // -:7
// CHECK-NEXT{LITERAL}:   %1 = stablehlo.constant {value = dense<-inf>} : tensor<f32>  // -:8
// CHECK-NEXT{LITERAL}:   %2 = stablehlo.constant {value = dense<0.0>} : tensor<f32>
// CHECK-NEXT{LITERAL}:   %3 = stablehlo.reduce %arg0, %2 {dimensions = (2,), monoid = stablehlo.add} : tensor<8x64x40xf32>  // -:9
// CHECK-NEXT{LITERAL}:     region 0(%arg3: tensor<f32>, %arg4: tensor<f32>) -> (%4) {
// CHECK-NEXT{LITERAL}:       %4 = stablehlo.add %arg3, %arg4 : tensor<f32>  // -:9
// CHECK-NEXT{LITERAL}:     }
// CHECK-NEXT{LITERAL}:   %5 = stablehlo.reduce %3, %0 {dimensions = (1,), monoid = stablehlo.add} : tensor<8x40xf32>  // -:9
// CHECK-NEXT{LITERAL}:     region 0(%arg3: tensor<f32>, %arg4: tensor<f32>) -> (%4) {
// CHECK-NEXT{LITERAL}:       %4 = stablehlo.add %arg3, %arg4 : tensor<f32>  // -:9
// CHECK-NEXT{LITERAL}:     }
// CHECK-NEXT{LITERAL}:   %6 = stablehlo.slice %arg1 {start_indices = (0, 0, 0), limit_indices = (3, 992, 20), strides = (1, 1, 1)} : tensor<3x992x20xf32>
// CHECK-NEXT{LITERAL}:   %7 = stablehlo.slice %arg1 {start_indices = (0, 992, 0), limit_indices = (3, 1009, 20), strides = (1, 1, 1)} : tensor<3x17x20xf32>
// CHECK-NEXT{LITERAL}:   %8 = stablehlo.constant {value = dense<0.0>} : tensor<f32>
// CHECK-NEXT{LITERAL}:   %9 = stablehlo.reshape %6 : tensor<3x32x31x20xf32>
// CHECK-NEXT{LITERAL}:   %10 = stablehlo.constant {value = dense<0.0>} : tensor<f32>
// CHECK-NEXT{LITERAL}:   %11 = stablehlo.reduce %9, %10 {dimensions = (2,), monoid = stablehlo.add} : tensor<3x32x20xf32>  // -:11
// CHECK-NEXT{LITERAL}:     region 0(%arg5: tensor<f32>, %arg6: tensor<f32>) -> (%12) {
// CHECK-NEXT{LITERAL}:       %12 = stablehlo.add %arg5, %arg6 : tensor<f32>  // -:11
// CHECK-NEXT{LITERAL}:     }
// CHECK-NEXT{LITERAL}:   %13 = stablehlo.reduce %11, %8 {dimensions = (1,), monoid = stablehlo.add} : tensor<3x20xf32>  // -:11
// CHECK-NEXT{LITERAL}:     region 0(%arg5: tensor<f32>, %arg6: tensor<f32>) -> (%12) {
// CHECK-NEXT{LITERAL}:       %12 = stablehlo.add %arg5, %arg6 : tensor<f32>  // -:11
// CHECK-NEXT{LITERAL}:     }
// CHECK-NEXT{LITERAL}:   %14 = stablehlo.reduce %7, %0 {dimensions = (1,), monoid = stablehlo.add} : tensor<3x20xf32>  // -:11
// CHECK-NEXT{LITERAL}:     region 0(%arg5: tensor<f32>, %arg6: tensor<f32>) -> (%12) {
// CHECK-NEXT{LITERAL}:       %12 = stablehlo.add %arg5, %arg6 : tensor<f32>  // -:11
// CHECK-NEXT{LITERAL}:     }
// CHECK-NEXT{LITERAL}:   %15 = stablehlo.add %13, %14 : tensor<3x20xf32>  // -:11
// CHECK-NEXT{LITERAL}:   %16 = stablehlo.constant {value = dense<-inf>} : tensor<f32>
// CHECK-NEXT{LITERAL}:   %17 = stablehlo.reduce %arg2, %16 {dimensions = (0,), monoid = stablehlo.maximum} : tensor<12x10xf32>  // -:13
// CHECK-NEXT{LITERAL}:     region 0(%arg7: tensor<f32>, %arg8: tensor<f32>) -> (%18) {
// CHECK-NEXT{LITERAL}:       %18 = stablehlo.maximum %arg7, %arg8 : tensor<f32>  // -:13
// CHECK-NEXT{LITERAL}:     }
// CHECK-NEXT{LITERAL}:   %19 = stablehlo.reduce %17, %1 {dimensions = (0,), monoid = stablehlo.maximum} : tensor<10xf32>  // -:13
// CHECK-NEXT{LITERAL}:     region 0(%arg7: tensor<f32>, %arg8: tensor<f32>) -> (%18) {
// CHECK-NEXT{LITERAL}:       %18 = stablehlo.maximum %arg7, %arg8 : tensor<f32>  // -:13
// CHECK-NEXT{LITERAL}:     }
// CHECK-NEXT{LITERAL}: }
