// RUN: jstitch opt %s --passes rewrite_one_hot_scatter | filecheck %s
// The gradient of x[rows, labels]: one update in each row.

func.func @main(%label: tensor<16xi32>, %u: tensor<16xf32>) -> tensor<16x8xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<16x8xf32>
  %row = stablehlo.iota dim = 0 : tensor<16x1xi32>
  %column = stablehlo.reshape %label : (tensor<16xi32>) -> tensor<16x1xi32>
  %at = stablehlo.concatenate %row, %column, dim = 1 : (tensor<16x1xi32>, tensor<16x1xi32>) -> tensor<16x2xi32>
  %s = "stablehlo.scatter"(%zero, %at, %u) ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %c = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %c : tensor<f32>
  }) {scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0, 1],
      scatter_dims_to_operand_dims = [0, 1], index_vector_dim = 1>}
    : (tensor<16x8xf32>, tensor<16x2xi32>, tensor<16xf32>) -> tensor<16x8xf32>
  return %s : tensor<16x8xf32>
}

// CHECK{LITERAL}: graph(%arg0: tensor<16xi32>, %arg1: tensor<16xf32>) -> (%12) {
// CHECK-NEXT{LITERAL}:   %0 = stablehlo.constant {value = dense<0.0>} : tensor<16x8xf32>  // -:5
// CHECK-NEXT{LITERAL}:   %1 = stablehlo.iota {iota_dimension = 0} : tensor<16x1xi32>  // -:6
// CHECK-NEXT{LITERAL}:   %2 = stablehlo.reshape %arg0 : tensor<16x1xi32>  // -:7
// CHECK-NEXT{LITERAL}:   %3 = stablehlo.concatenate %1, %2 {dimension = 1} : tensor<16x2xi32>  // -:8
// CHECK-NEXT{LITERAL}:   %4 = stablehlo.constant {value = dense<0.0>} : tensor<16x8xf32>  // -:9
// CHECK-NEXT{LITERAL}:   %5 = stablehlo.constant {value = dense<0.0>} : tensor<16xf32>  // -:9
// CHECK-NEXT{LITERAL}:   %6 = stablehlo.add %5, %arg1 : tensor<16xf32>  // -:9
// CHECK-NEXT{LITERAL}:   %7 = stablehlo.broadcast_in_dim %6 {broadcast_dimensions = (0,)} : tensor<16x8xf32>  // -:9
// CHECK-NEXT{LITERAL}:   %8 = stablehlo.reshape %2 : tensor<16xi32>  // -:9
// CHECK-NEXT{LITERAL}:   %9 = stablehlo.broadcast_in_dim %8 {broadcast_dimensions = (0,)} : tensor<16x8xi32>  // -:9
// CHECK-NEXT{LITERAL}:   %10 = stablehlo.iota {iota_dimension = 1} : tensor<16x8xi32>  // -:9
// CHECK-NEXT{LITERAL}:   %11 = stablehlo.compare %10, %9 {comparison_direction = EQ} : tensor<16x8xi1>  // -:9
// CHECK-NEXT{LITERAL}:   %12 = stablehlo.select %11, %7, %4 : tensor<16x8xf32>  // -:9
// CHECK-NEXT{LITERAL}: }
