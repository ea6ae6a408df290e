// RUN: jstitch opt %s --passes plan_layers,weigh_cuts --target cpu | filecheck %s
// XLA has one kernel of a step of complex numbers: the ops of reals inside would cut it.

func.func @main(%z: tensor<1024x512xcomplex<f32>>, %c: tensor<1024x512xcomplex<f32>>) -> tensor<1024x512xcomplex<f32>> {
  %a = stablehlo.real %z : (tensor<1024x512xcomplex<f32>>) -> tensor<1024x512xf32>
  %b = stablehlo.imag %z : (tensor<1024x512xcomplex<f32>>) -> tensor<1024x512xf32>
  %aa = stablehlo.multiply %a, %a : tensor<1024x512xf32>
  %bb = stablehlo.multiply %b, %b : tensor<1024x512xf32>
  %n = stablehlo.add %aa, %bb : tensor<1024x512xf32>
  %four = stablehlo.constant dense<4.0> : tensor<1024x512xf32>
  %p = stablehlo.compare LT, %n, %four : (tensor<1024x512xf32>, tensor<1024x512xf32>) -> tensor<1024x512xi1>
  %zz = stablehlo.multiply %z, %z : tensor<1024x512xcomplex<f32>>
  %zc = stablehlo.add %zz, %c : tensor<1024x512xcomplex<f32>>
  %r = stablehlo.select %p, %zc, %z : tensor<1024x512xi1>, tensor<1024x512xcomplex<f32>>
  func.return %r : tensor<1024x512xcomplex<f32>>
}

// CHECK{LITERAL}: frame 0
// CHECK-NEXT{LITERAL}: not fused
// CHECK-NEXT{LITERAL}:   %0 stablehlo.real -> %2 stablehlo.multiply    cut: modelled 40.50 us, and must be less than 0 us, 0.95 of what XLA takes longer with these ops in its kernels for 3 others around
// CHECK-NEXT{LITERAL}:   %1 stablehlo.imag -> %3 stablehlo.multiply    cut: modelled 40.50 us, and must be less than 0 us, 0.95 of what XLA takes longer with these ops in its kernels for 3 others around
// CHECK-NEXT{LITERAL}:   %2 stablehlo.multiply -> %4 stablehlo.add    cut: modelled 40.50 us, and must be less than 0 us, 0.95 of what XLA takes longer with these ops in its kernels for 3 others around
// CHECK-NEXT{LITERAL}:   %3 stablehlo.multiply -> %4 stablehlo.add    cut: modelled 40.50 us, and must be less than 0 us, 0.95 of what XLA takes longer with these ops in its kernels for 3 others around
// CHECK-NEXT{LITERAL}:   %4 stablehlo.add -> %6 stablehlo.compare    cut: modelled 40.50 us, and must be less than 0 us, 0.95 of what XLA takes longer with these ops in its kernels for 3 others around
// CHECK-NEXT{LITERAL}:   %7 stablehlo.multiply -> %8 stablehlo.add    type: stablehlo.add has a value of type complex<f32>, which kernels do not compute with
// CHECK-NEXT{LITERAL}:   %6 stablehlo.compare -> %9 stablehlo.select    type: stablehlo.select has a value of type complex<f32>, which kernels do not compute with
// CHECK-NEXT{LITERAL}:   %8 stablehlo.add -> %9 stablehlo.select    type: stablehlo.select has a value of type complex<f32>, which kernels do not compute with
