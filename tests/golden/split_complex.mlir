// RUN: jstitch opt %s --passes split_complex | filecheck %s
// A filter between two Fourier transforms: a product in parts.

func.func @main(%x: tensor<4x8xcomplex<f32>>, %filter: tensor<4x8xcomplex<f32>>) -> (tensor<4x8xcomplex<f32>>, tensor<4xf32>) {
  %t = stablehlo.fft %x, type = FFT, length = [8] : (tensor<4x8xcomplex<f32>>) -> tensor<4x8xcomplex<f32>>
  %y = stablehlo.multiply %t, %filter : tensor<4x8xcomplex<f32>>
  %r = stablehlo.reverse %y, dims = [1] : tensor<4x8xcomplex<f32>>
  %z = stablehlo.fft %r, type = IFFT, length = [8] : (tensor<4x8xcomplex<f32>>) -> tensor<4x8xcomplex<f32>>
  %s = stablehlo.slice %y [0:4, 0:1] : (tensor<4x8xcomplex<f32>>) -> tensor<4x1xcomplex<f32>>
  %c = stablehlo.reshape %s : (tensor<4x1xcomplex<f32>>) -> tensor<4xcomplex<f32>>
  %n = stablehlo.real %c : (tensor<4xcomplex<f32>>) -> tensor<4xf32>
  return %z, %n : tensor<4x8xcomplex<f32>>, tensor<4xf32>
}

// CHECK{LITERAL}: graph(%arg0: tensor<4x8xcomplex<f32>>, %arg1: tensor<4x8xcomplex<f32>>) -> (%14, %17) {
// CHECK-NEXT{LITERAL}:   %0 = stablehlo.real %arg1 : tensor<4x8xf32>
// CHECK-NEXT{LITERAL}:   %1 = stablehlo.imag %arg1 : tensor<4x8xf32>
// CHECK-NEXT{LITERAL}:   %2 = stablehlo.fft %arg0 {num_operands = 1, pure = True} : tensor<4x8xcomplex<f32>>  // -:5
// CHECK-NEXT{LITERAL}:   %3 = stablehlo.real %2 : tensor<4x8xf32>  // -:5
// CHECK-NEXT{LITERAL}:   %4 = stablehlo.imag %2 : tensor<4x8xf32>  // -:5
// CHECK-NEXT{LITERAL}:   %5 = stablehlo.multiply %3, %0 : tensor<4x8xf32>  // -:6
// CHECK-NEXT{LITERAL}:   %6 = stablehlo.multiply %4, %1 : tensor<4x8xf32>  // -:6
// CHECK-NEXT{LITERAL}:   %7 = stablehlo.subtract %5, %6 : tensor<4x8xf32>  // -:6
// CHECK-NEXT{LITERAL}:   %8 = stablehlo.multiply %3, %1 : tensor<4x8xf32>  // -:6
// CHECK-NEXT{LITERAL}:   %9 = stablehlo.multiply %4, %0 : tensor<4x8xf32>  // -:6
// CHECK-NEXT{LITERAL}:   %10 = stablehlo.add %8, %9 : tensor<4x8xf32>  // -:6
// CHECK-NEXT{LITERAL}:   %11 = stablehlo.reverse %7 {dimensions = (1,)} : tensor<4x8xf32>  // -:7
// CHECK-NEXT{LITERAL}:   %12 = stablehlo.reverse %10 {dimensions = (1,)} : tensor<4x8xf32>  // -:7
// CHECK-NEXT{LITERAL}:   %13 = stablehlo.complex %11, %12 : tensor<4x8xcomplex<f32>>  // -:8
// CHECK-NEXT{LITERAL}:   %14 = stablehlo.fft %13 {num_operands = 1, pure = True} : tensor<4x8xcomplex<f32>>  // -:8
// CHECK-NEXT{LITERAL}:   %15 = stablehlo.slice %7 {limit_indices = (4, 1), start_indices = (0, 0), strides = (1, 1)} : tensor<4x1xf32>  // -:9
// CHECK-NEXT{LITERAL}:   %16 = stablehlo.slice %10 {limit_indices = (4, 1), start_indices = (0, 0), strides = (1, 1)} : tensor<4x1xf32>  // -:9
// CHECK-NEXT{LITERAL}:   %17 = stablehlo.reshape %15 : tensor<4xf32>  // -:10
// CHECK-NEXT{LITERAL}:   %18 = stablehlo.reshape %16 : tensor<4xf32>  // -:10
// CHECK-NEXT{LITERAL}: }
