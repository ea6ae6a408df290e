// RUN: jstitch opt %s --passes batch_gathers | filecheck %s
// x[arange(8), y] says that it needs nothing but its own row.

func.func @main(%x: tensor<8x5xf32>, %y: tensor<8x1xi32>) -> tensor<8xf32> {
  %r = stablehlo.iota dim = 0 : tensor<8x1xi32>
  %i = stablehlo.concatenate %r, %y, dim = 1 : (tensor<8x1xi32>, tensor<8x1xi32>) -> tensor<8x2xi32>
  %g = "stablehlo.gather"(%x, %i) <{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0, 1],
    start_index_map = [0, 1], index_vector_dim = 1>, indices_are_sorted = false,
    slice_sizes = array<i64: 1, 1>}> : (tensor<8x5xf32>, tensor<8x2xi32>) -> tensor<8xf32>
  return %g : tensor<8xf32>
}

// CHECK{LITERAL}: graph(%arg0: tensor<8x5xf32>, %arg1: tensor<8x1xi32>) -> (%2) {
// CHECK-NEXT{LITERAL}:   %0 = stablehlo.iota {iota_dimension = 0} : tensor<8x1xi32>  // -:5
// CHECK-NEXT{LITERAL}:   %1 = stablehlo.concatenate %0, %arg1 {dimension = 1} : tensor<8x2xi32>  // -:6
// CHECK-NEXT{LITERAL}:   %2 = stablehlo.gather %arg0, %arg1 {offset_dims = (), collapsed_slice_dims = (1,), operand_batching_dims = (0,), start_indices_batching_dims = (0,), start_index_map = (1,), index_vector_dim = 1, indices_are_sorted = False, slice_sizes = (1, 1)} : tensor<8xf32>  // -:7
// CHECK-NEXT{LITERAL}: }
