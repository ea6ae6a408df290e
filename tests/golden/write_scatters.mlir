// RUN: jstitch opt %s --passes write_scatters | filecheck %s
// x.at[3].set(u): one place, which is known.

func.func @main(%a: tensor<16x8xf32>, %u: tensor<8xf32>) -> tensor<16x8xf32> {
  %x = stablehlo.exponential %a : tensor<16x8xf32>
  %at = stablehlo.constant dense<3> : tensor<1xi32>
  %s = "stablehlo.scatter"(%x, %at, %u) ({
  ^bb0(%old: tensor<f32>, %new: tensor<f32>):
    stablehlo.return %new : tensor<f32>
  }) {scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [0], inserted_window_dims = [0],
      scatter_dims_to_operand_dims = [0]>}
    : (tensor<16x8xf32>, tensor<1xi32>, tensor<8xf32>) -> tensor<16x8xf32>
  return %s : tensor<16x8xf32>
}

// CHECK{LITERAL}: graph(%arg0: tensor<16x8xf32>, %arg1: tensor<8xf32>) -> (%8) {
// CHECK-NEXT{LITERAL}:   %0 = stablehlo.exponential %arg0 : tensor<16x8xf32>  // -:5
// CHECK-NEXT{LITERAL}:   %1 = stablehlo.constant {value = dense<3>} : tensor<1xi32>  // -:6
// CHECK-NEXT{LITERAL}:   %2 = stablehlo.reshape %arg1 : tensor<8xf32>  // -:7
// CHECK-NEXT{LITERAL}:   %3 = stablehlo.broadcast_in_dim %2 {broadcast_dimensions = (1,)} : tensor<16x8xf32>  // -:7
// CHECK-NEXT{LITERAL}:   %4 = stablehlo.iota {iota_dimension = 0} : tensor<16xi32>  // -:7
// CHECK-NEXT{LITERAL}:   %5 = stablehlo.constant {value = dense<3>} : tensor<16xi32>  // -:7
// CHECK-NEXT{LITERAL}:   %6 = stablehlo.compare %4, %5 {comparison_direction = EQ} : tensor<16xi1>  // -:7
// CHECK-NEXT{LITERAL}:   %7 = stablehlo.broadcast_in_dim %6 {broadcast_dimensions = (0,)} : tensor<16x8xi1>  // -:7
// CHECK-NEXT{LITERAL}:   %8 = stablehlo.select %7, %3, %0 {place = 32} : tensor<16x8xf32>  // -:7
// CHECK-NEXT{LITERAL}: }
