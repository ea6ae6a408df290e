// RUN: jstitch opt %s --passes write_sorts --target cpu | filecheck %s
// Two rows in order: where the second element is the smaller one, both are exchanged.

func.func @main(%x: tensor<2x64xf32>) -> tensor<2x64xf32> {
  %r = "stablehlo.sort"(%x) <{dimension = 0 : i64, is_stable = true}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %c = stablehlo.compare LT, %a, %b, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  }) : (tensor<2x64xf32>) -> tensor<2x64xf32>
  func.return %r : tensor<2x64xf32>
}

// CHECK{LITERAL}: graph(%arg0: tensor<2x64xf32>) -> (%5) {
// CHECK-NEXT{LITERAL}:   %0 = stablehlo.slice %arg0 {start_indices = (0, 0), limit_indices = (1, 64), strides = (1, 1)} : tensor<1x64xf32>  // -:5
// CHECK-NEXT{LITERAL}:   %1 = stablehlo.slice %arg0 {start_indices = (1, 0), limit_indices = (2, 64), strides = (1, 1)} : tensor<1x64xf32>  // -:5
// CHECK-NEXT{LITERAL}:   %2 = stablehlo.compare %1, %0 {compare_type = TOTALORDER, comparison_direction = LT} : tensor<1x64xi1>  // -:7
// CHECK-NEXT{LITERAL}:   %3 = stablehlo.select %2, %1, %0 : tensor<1x64xf32>  // -:5
// CHECK-NEXT{LITERAL}:   %4 = stablehlo.select %2, %0, %1 : tensor<1x64xf32>  // -:5
// CHECK-NEXT{LITERAL}:   %5 = stablehlo.concatenate %3, %4 {dimension = 0, window = 250} : tensor<2x64xf32>  // -:5
// CHECK-NEXT{LITERAL}: }
