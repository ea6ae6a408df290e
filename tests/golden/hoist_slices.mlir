// RUN: jstitch opt %s --passes hoist_slices | filecheck %s
// Eight rows are looked up in the square of %x, which another op reads, too, behind a product.

func.func @main(%x: tensor<512x256xf32>, %w: tensor<256x512xf32>, %i: tensor<8x1xi32>)
    -> (tensor<8x256xf32>, tensor<512x256xf32>) {
  %two = stablehlo.constant dense<2.0> : tensor<512x256xf32>
  %s = stablehlo.multiply %x, %x : tensor<512x256xf32>
  %y = stablehlo.add %s, %two : tensor<512x256xf32>
  %p = "stablehlo.gather"(%y, %i) <{dimension_numbers = #stablehlo.gather<offset_dims = [1],
      collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>,
      slice_sizes = array<i64: 1, 256>, indices_are_sorted = false}>
    : (tensor<512x256xf32>, tensor<8x1xi32>) -> tensor<8x256xf32>
  %d = stablehlo.dot_general %w, %w, contracting_dims = [0] x [0] : (tensor<256x512xf32>, tensor<256x512xf32>) -> tensor<512x512xf32>
  %c = stablehlo.slice %d [0:512, 0:256] : (tensor<512x512xf32>) -> tensor<512x256xf32>
  %r = stablehlo.multiply %y, %c : tensor<512x256xf32>
  return %p, %r : tensor<8x256xf32>, tensor<512x256xf32>
}

// CHECK{LITERAL}: graph(%arg0: tensor<512x256xf32>, %arg1: tensor<256x512xf32>, %arg2: tensor<8x1xi32>) -> (%6, %9) {
// CHECK-NEXT{LITERAL}:   %0 = stablehlo.constant {value = dense<2.0>} : tensor<512x256xf32>  // -:6
// CHECK-NEXT{LITERAL}:   %1 = stablehlo.multiply %arg0, %arg0 : tensor<512x256xf32>  // -:7
// CHECK-NEXT{LITERAL}:   %2 = stablehlo.add %1, %0 : tensor<512x256xf32>  // -:8
// CHECK-NEXT{LITERAL}:   %3 = stablehlo.gather %arg0, %arg2 {offset_dims = (1,), collapsed_slice_dims = (0,), operand_batching_dims = (), start_indices_batching_dims = (), start_index_map = (0,), index_vector_dim = 1, indices_are_sorted = False, slice_sizes = (1, 256)} : tensor<8x256xf32>  // -:9
// CHECK-NEXT{LITERAL}:   %4 = stablehlo.multiply %3, %3 : tensor<8x256xf32>  // -:7
// CHECK-NEXT{LITERAL}:   %5 = stablehlo.constant {value = dense<2.0>} : tensor<8x256xf32>  // -:9
// CHECK-NEXT{LITERAL}:   %6 = stablehlo.add %4, %5 : tensor<8x256xf32>  // -:8
// CHECK-NEXT{LITERAL}:   %7 = stablehlo.dot_general %arg1, %arg1 {lhs_batching_dimensions = (), rhs_batching_dimensions = (), lhs_contracting_dimensions = (0,), rhs_contracting_dimensions = (0,)} : tensor<512x512xf32>  // -:13
// CHECK-NEXT{LITERAL}:   %8 = stablehlo.slice %7 {limit_indices = (512, 256), start_indices = (0, 0), strides = (1, 1)} : tensor<512x256xf32>  // -:14
// CHECK-NEXT{LITERAL}:   %9 = stablehlo.multiply %2, %8 : tensor<512x256xf32>  // -:15
// CHECK-NEXT{LITERAL}: }
