// RUN: jstitch opt %s --passes clone_indices --target h200 | filecheck %s
// On a GPU: the arithmetic of an index that two slices read is computed in both.

func.func @main(%x: tensor<64x8xf32>, %y: tensor<64x8xf32>, %i: tensor<i32>) -> (tensor<1x8xf32>, tensor<1x8xf32>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %j = stablehlo.add %i, %one : tensor<i32>
  %a = stablehlo.dynamic_slice %x, %j, %zero, sizes = [1, 8] : (tensor<64x8xf32>, tensor<i32>, tensor<i32>) -> tensor<1x8xf32>
  %b = stablehlo.dynamic_slice %y, %j, %zero, sizes = [1, 8] : (tensor<64x8xf32>, tensor<i32>, tensor<i32>) -> tensor<1x8xf32>
  return %a, %b : tensor<1x8xf32>, tensor<1x8xf32>
}

// CHECK{LITERAL}: graph(%arg0: tensor<64x8xf32>, %arg1: tensor<64x8xf32>, %arg2: tensor<i32>) -> (%3, %5) {
// CHECK-NEXT{LITERAL}:   %0 = stablehlo.constant {value = dense<0>} : tensor<i32>  // -:5
// CHECK-NEXT{LITERAL}:   %1 = stablehlo.constant {value = dense<1>} : tensor<i32>  // -:6
// CHECK-NEXT{LITERAL}:   %2 = stablehlo.add %arg2, %1 : tensor<i32>  // -:7
// CHECK-NEXT{LITERAL}:   %3 = stablehlo.dynamic_slice %arg0, %2, %0 {slice_sizes = (1, 8)} : tensor<1x8xf32>  // -:8
// CHECK-NEXT{LITERAL}:   %4 = stablehlo.add %arg2, %1 : tensor<i32>  // -:7
// CHECK-NEXT{LITERAL}:   %5 = stablehlo.dynamic_slice %arg1, %4, %0 {slice_sizes = (1, 8)} : tensor<1x8xf32>  // -:9
// CHECK-NEXT{LITERAL}: }
