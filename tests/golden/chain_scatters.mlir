// RUN: jstitch opt %s --passes chain_scatters --target h200 | filecheck %s
// On a GPU: two scattered tensors that are added, as gradients of embeddings are, become one.

func.func @main(%i: tensor<16x1xi32>, %u: tensor<16x8xf32>, %v: tensor<16x8xf32>) -> tensor<64x8xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<64x8xf32>
  %t = "stablehlo.scatter"(%zero, %i, %v) ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %c = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %c : tensor<f32>
  }) {scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0],
      scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}
    : (tensor<64x8xf32>, tensor<16x1xi32>, tensor<16x8xf32>) -> tensor<64x8xf32>
  %s = "stablehlo.scatter"(%zero, %i, %u) ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %c = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %c : tensor<f32>
  }) {scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0],
      scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}
    : (tensor<64x8xf32>, tensor<16x1xi32>, tensor<16x8xf32>) -> tensor<64x8xf32>
  %y = stablehlo.add %t, %s : tensor<64x8xf32>
  return %y : tensor<64x8xf32>
}

// CHECK{LITERAL}: graph(%arg0: tensor<16x1xi32>, %arg1: tensor<16x8xf32>, %arg2: tensor<16x8xf32>) -> (%5) {
// CHECK-NEXT{LITERAL}:   %0 = stablehlo.constant {value = dense<0.0>} : tensor<64x8xf32>  // -:5
// CHECK-NEXT{LITERAL}:   %1 = stablehlo.scatter %0, %arg0, %arg2 {update_window_dims = (1,), inserted_window_dims = (0,), input_batching_dims = (), scatter_indices_batching_dims = (), scattered_dims_to_operand_dims = (0,), index_vector_dim = 1, monoid = stablehlo.add} : tensor<64x8xf32>  // -:6
// CHECK-NEXT{LITERAL}:     region 0(%arg3: tensor<f32>, %arg4: tensor<f32>) -> (%2) {
// CHECK-NEXT{LITERAL}:       %2 = stablehlo.add %arg3, %arg4 : tensor<f32>  // -:8
// CHECK-NEXT{LITERAL}:     }
// CHECK-NEXT{LITERAL}:   %3 = stablehlo.scatter %0, %arg0, %arg1 {update_window_dims = (1,), inserted_window_dims = (0,), input_batching_dims = (), scatter_indices_batching_dims = (), scattered_dims_to_operand_dims = (0,), index_vector_dim = 1, monoid = stablehlo.add} : tensor<64x8xf32>  // -:13
// CHECK-NEXT{LITERAL}:     region 0(%arg5: tensor<f32>, %arg6: tensor<f32>) -> (%4) {
// CHECK-NEXT{LITERAL}:       %4 = stablehlo.add %arg5, %arg6 : tensor<f32>  // -:15
// CHECK-NEXT{LITERAL}:     }
// CHECK-NEXT{LITERAL}:   %5 = stablehlo.scatter %1, %arg0, %arg1 {update_window_dims = (1,), inserted_window_dims = (0,), input_batching_dims = (), scatter_indices_batching_dims = (), scattered_dims_to_operand_dims = (0,), index_vector_dim = 1, monoid = stablehlo.add} : tensor<64x8xf32>  // -:13
// CHECK-NEXT{LITERAL}:     region 0(%arg5: tensor<f32>, %arg6: tensor<f32>) -> (%4) {
// CHECK-NEXT{LITERAL}:       %4 = stablehlo.add %arg5, %arg6 : tensor<f32>  // -:15
// CHECK-NEXT{LITERAL}:     }
// CHECK-NEXT{LITERAL}: }
