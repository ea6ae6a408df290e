// RUN: jstitch opt %s --passes narrow_collectives | filecheck %s
// Half floats are gathered before they are widened, also where they are turned in between; floats are narrowed first.

func.func @main(%a: tensor<4x2xbf16>, %b: tensor<4xf32>) -> (tensor<8x4xf32>, tensor<8xbf16>) {
  %0 = stablehlo.convert %a : (tensor<4x2xbf16>) -> tensor<4x2xf32>
  %1 = stablehlo.transpose %0, dims = [1, 0] : (tensor<4x2xf32>) -> tensor<2x4xf32>
  %2 = "stablehlo.all_gather"(%1) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>}>
    : (tensor<2x4xf32>) -> tensor<8x4xf32>
  %3 = "stablehlo.all_gather"(%b) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}>
    : (tensor<4xf32>) -> tensor<8xf32>
  %4 = stablehlo.convert %3 : (tensor<8xf32>) -> tensor<8xbf16>
  return %2, %4 : tensor<8x4xf32>, tensor<8xbf16>
}

// CHECK{LITERAL}: graph(%arg0: tensor<4x2xbf16>, %arg1: tensor<4xf32>) -> (%4, %7) {
// CHECK-NEXT{LITERAL}:   %0 = stablehlo.convert %arg0 : tensor<4x2xf32>  // -:5
// CHECK-NEXT{LITERAL}:   %1 = stablehlo.transpose %0 {permutation = (1, 0)} : tensor<2x4xf32>  // -:6
// CHECK-NEXT{LITERAL}:   %2 = stablehlo.transpose %arg0 {permutation = (1, 0)} : tensor<2x4xbf16>  // -:6
// CHECK-NEXT{LITERAL}:   %3 = stablehlo.all_gather %2 {all_gather_dim = 0, replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>} : tensor<8x4xbf16>  // -:7
// CHECK-NEXT{LITERAL}:   %4 = stablehlo.convert %3 : tensor<8x4xf32>  // -:5
// CHECK-NEXT{LITERAL}:   %5 = stablehlo.all_gather %arg1 {all_gather_dim = 0, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>} : tensor<8xf32>  // -:9
// CHECK-NEXT{LITERAL}:   %6 = stablehlo.convert %arg1 : tensor<4xbf16>  // -:11
// CHECK-NEXT{LITERAL}:   %7 = stablehlo.all_gather %6 {all_gather_dim = 0, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>} : tensor<8xbf16>  // -:9
// CHECK-NEXT{LITERAL}: }
