// RUN: jstitch opt %s --passes linearize_iotas | filecheck %s
// How JAX numbers the elements that it draws random bits for: by one iota, in 32 bits, without a high half.

func.func @main(%x: tensor<4x8xui32>) -> (tensor<4x8xui32>, tensor<4x8xui32>) {
  %rows = stablehlo.iota dim = 0 : tensor<4x8xui64>
  %columns = stablehlo.iota dim = 1 : tensor<4x8xui64>
  %eight = stablehlo.constant dense<8> : tensor<4x8xui64>
  %first = stablehlo.multiply %eight, %rows : tensor<4x8xui64>
  %number = stablehlo.add %first, %columns : tensor<4x8xui64>
  %half = stablehlo.constant dense<32> : tensor<4x8xui64>
  %over = stablehlo.shift_right_logical %number, %half : tensor<4x8xui64>
  %high = stablehlo.convert %over : (tensor<4x8xui64>) -> tensor<4x8xui32>
  %low = stablehlo.convert %number : (tensor<4x8xui64>) -> tensor<4x8xui32>
  %a = stablehlo.add %x, %high : tensor<4x8xui32>
  %b = stablehlo.add %x, %low : tensor<4x8xui32>
  return %a, %b : tensor<4x8xui32>, tensor<4x8xui32>
}

// CHECK{LITERAL}: graph(%arg0: tensor<4x8xui32>) -> (%11, %12) {
// CHECK-NEXT{LITERAL}:   %0 = stablehlo.iota {iota_dimension = 0} : tensor<4x8xui64>  // -:5
// CHECK-NEXT{LITERAL}:   %1 = stablehlo.iota {iota_dimension = 1} : tensor<4x8xui64>  // -:6
// CHECK-NEXT{LITERAL}:   %2 = stablehlo.constant {value = dense<8>} : tensor<4x8xui64>  // -:7
// CHECK-NEXT{LITERAL}:   %3 = stablehlo.multiply %2, %0 : tensor<4x8xui64>  // -:8
// CHECK-NEXT{LITERAL}:   %4 = stablehlo.iota {iota_dimension = 0} : tensor<32xui64>  // -:9
// CHECK-NEXT{LITERAL}:   %5 = stablehlo.reshape %4 : tensor<4x8xui64>  // -:9
// CHECK-NEXT{LITERAL}:   %6 = stablehlo.constant {value = dense<32>} : tensor<4x8xui64>  // -:10
// CHECK-NEXT{LITERAL}:   %7 = stablehlo.constant {value = dense<0>} : tensor<4x8xui64>  // -:11
// CHECK-NEXT{LITERAL}:   %8 = stablehlo.constant {value = dense<0>} : tensor<4x8xui32>  // -:12
// CHECK-NEXT{LITERAL}:   %9 = stablehlo.iota {iota_dimension = 0} : tensor<32xui32>  // -:13
// CHECK-NEXT{LITERAL}:   %10 = stablehlo.reshape %9 : tensor<4x8xui32>  // -:13
// CHECK-NEXT{LITERAL}:   %11 = stablehlo.add %arg0, %8 : tensor<4x8xui32>  // -:14
// CHECK-NEXT{LITERAL}:   %12 = stablehlo.add %arg0, %10 : tensor<4x8xui32>  // -:15
// CHECK-NEXT{LITERAL}: }
