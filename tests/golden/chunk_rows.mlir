// RUN: jstitch opt %s --passes 'chunk_rows{least=1 longer=1000000.0}' | filecheck %s
// Rows of %z are made a few at a time, and their product over all rows is added up.

func.func @main(%x: tensor<64x2xf32>, %w: tensor<2x64xf32>) -> tensor<64x2xf32> {
  %z = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
    : (tensor<64x2xf32>, tensor<2x64xf32>) -> tensor<64x64xf32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %s = stablehlo.reduce(%z init: %zero) applies stablehlo.add across dimensions = [1]
    : (tensor<64x64xf32>, tensor<f32>) -> tensor<64xf32>
  %b = stablehlo.broadcast_in_dim %s, dims = [0] : (tensor<64xf32>) -> tensor<64x64xf32>
  %d = stablehlo.multiply %z, %b : tensor<64x64xf32>
  %g = stablehlo.dot_general %d, %x, contracting_dims = [0] x [0]
    : (tensor<64x64xf32>, tensor<64x2xf32>) -> tensor<64x2xf32>
  return %g : tensor<64x2xf32>
}

// CHECK{LITERAL}: graph(%arg0: tensor<64x2xf32>, %arg1: tensor<2x64xf32>) -> (%4) {
// CHECK-NEXT{LITERAL}:   %0 = stablehlo.constant {value = dense<0>} : tensor<i32>
// CHECK-NEXT{LITERAL}:   %1 = stablehlo.constant {value = dense<0.0>} : tensor<64x2xf32>
// CHECK-NEXT{LITERAL}:   %2 = stablehlo.constant {value = dense<0.0>} : tensor<f32>  // -:7
// CHECK-NEXT{LITERAL}:   %3, %4 = stablehlo.while %0, %1 {chunked = tensor<64x64xf32>, 0.0 MB, is made in 32 chunks of 2 rows} : tensor<i32>, tensor<64x2xf32>  // -:5
// CHECK-NEXT{LITERAL}:     region 0(%arg2: tensor<i32>, %arg3: tensor<64x2xf32>) -> (%6) {
// CHECK-NEXT{LITERAL}:       %5 = stablehlo.constant {value = dense<32>} : tensor<i32>  // -:5
// CHECK-NEXT{LITERAL}:       %6 = stablehlo.compare %arg2, %5 {comparison_direction = LT} : tensor<i1>  // -:5
// CHECK-NEXT{LITERAL}:     }
// CHECK-NEXT{LITERAL}:     region 1(%arg4: tensor<i32>, %arg5: tensor<64x2xf32>) -> (%18, %19) {
// CHECK-NEXT{LITERAL}:       %7 = stablehlo.constant {value = dense<2>} : tensor<i32>  // -:5
// CHECK-NEXT{LITERAL}:       %8 = stablehlo.multiply %arg4, %7 : tensor<i32>  // -:5
// CHECK-NEXT{LITERAL}:       %9 = stablehlo.constant {value = dense<0>} : tensor<i32>  // -:5
// CHECK-NEXT{LITERAL}:       %10 = stablehlo.dynamic_slice %arg0, %8, %9 {slice_sizes = (2, 2)} : tensor<2x2xf32>  // -:5
// CHECK-NEXT{LITERAL}:       %11 = stablehlo.dot_general %10, %arg1 {lhs_batching_dimensions = (), rhs_batching_dimensions = (), lhs_contracting_dimensions = (1,), rhs_contracting_dimensions = (0,)} : tensor<2x64xf32>  // -:5
// CHECK-NEXT{LITERAL}:       %12 = stablehlo.reduce %11, %2 {dimensions = (1,), monoid = stablehlo.add} : tensor<2xf32>  // -:8
// CHECK-NEXT{LITERAL}:         region 0(%arg6: tensor<f32>, %arg7: tensor<f32>) -> (%13) {
// CHECK-NEXT{LITERAL}:           %13 = stablehlo.add %arg6, %arg7 : tensor<f32>  // -:8
// CHECK-NEXT{LITERAL}:         }
// CHECK-NEXT{LITERAL}:       %14 = stablehlo.broadcast_in_dim %12 {broadcast_dimensions = (0,)} : tensor<2x64xf32>  // -:10
// CHECK-NEXT{LITERAL}:       %15 = stablehlo.multiply %11, %14 : tensor<2x64xf32>  // -:11
// CHECK-NEXT{LITERAL}:       %16 = stablehlo.dot_general %15, %10 {lhs_batching_dimensions = (), rhs_batching_dimensions = (), lhs_contracting_dimensions = (0,), rhs_contracting_dimensions = (0,)} : tensor<64x2xf32>  // -:12
// CHECK-NEXT{LITERAL}:       %17 = stablehlo.constant {value = dense<1>} : tensor<i32>  // -:5
// CHECK-NEXT{LITERAL}:       %18 = stablehlo.add %arg4, %17 : tensor<i32>  // -:5
// CHECK-NEXT{LITERAL}:       %19 = stablehlo.add %arg5, %16 : tensor<64x2xf32>  // -:5
// CHECK-NEXT{LITERAL}:     }
// CHECK-NEXT{LITERAL}: }
