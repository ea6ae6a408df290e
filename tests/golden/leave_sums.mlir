// RUN: jstitch opt %s --passes leave_sums --target h200 | filecheck %s
// On a GPU: the sum around a residual block is marked, which the library adds up while it multiplies.

func.func @main(%x: tensor<8x8xf32>, %a: tensor<8x8xf32>, %b: tensor<8x8xf32>, %c: tensor<8xf32>) -> tensor<8x8xf32> {
  %y = stablehlo.tanh %x : tensor<8x8xf32>
  %q = stablehlo.dot_general %y, %a, contracting_dims = [1] x [0]
    : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %p = stablehlo.dot_general %q, %b, contracting_dims = [1] x [0]
    : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %bias = stablehlo.broadcast_in_dim %c, dims = [1] : (tensor<8xf32>) -> tensor<8x8xf32>
  %r = stablehlo.add %p, %bias : tensor<8x8xf32>
  %s = stablehlo.add %y, %r : tensor<8x8xf32>
  %z = stablehlo.exponential %s : tensor<8x8xf32>
  return %z : tensor<8x8xf32>
}

// CHECK{LITERAL}: graph(%arg0: tensor<8x8xf32>, %arg1: tensor<8x8xf32>, %arg2: tensor<8x8xf32>, %arg3: tensor<8xf32>) -> (%6) {
// CHECK-NEXT{LITERAL}:   %0 = stablehlo.tanh %arg0 : tensor<8x8xf32>  // -:5
// CHECK-NEXT{LITERAL}:   %1 = stablehlo.dot_general %0, %arg1 {lhs_batching_dimensions = (), rhs_batching_dimensions = (), lhs_contracting_dimensions = (1,), rhs_contracting_dimensions = (0,)} : tensor<8x8xf32>  // -:6
// CHECK-NEXT{LITERAL}:   %2 = stablehlo.dot_general %1, %arg2 {lhs_batching_dimensions = (), rhs_batching_dimensions = (), lhs_contracting_dimensions = (1,), rhs_contracting_dimensions = (0,)} : tensor<8x8xf32>  // -:8
// CHECK-NEXT{LITERAL}:   %3 = stablehlo.broadcast_in_dim %arg3 {broadcast_dimensions = (1,), left = is added while the library multiplies} : tensor<8x8xf32>  // -:10
// CHECK-NEXT{LITERAL}:   %4 = stablehlo.add %2, %3 {left = is added while the library multiplies} : tensor<8x8xf32>  // -:11
// CHECK-NEXT{LITERAL}:   %5 = stablehlo.add %0, %4 {left = is added while the library multiplies} : tensor<8x8xf32>  // -:12
// CHECK-NEXT{LITERAL}:   %6 = stablehlo.exponential %5 : tensor<8x8xf32>  // -:13
// CHECK-NEXT{LITERAL}: }
