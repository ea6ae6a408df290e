// RUN: jstitch opt %s --passes plan_layers,tile_chains --target h200 --tune off | filecheck %s
// Two products with a tanh between: the rows that go together, as the search has found them.

func.func @main(%q: tensor<96x2048x64xbf16>, %k: tensor<96x512x64xbf16>, %v: tensor<96x512x64xbf16>) -> tensor<96x2048x64xbf16> {
  %s = stablehlo.dot_general %q, %k, batching_dims = [0] x [0], contracting_dims = [2] x [2] : (tensor<96x2048x64xbf16>, tensor<96x512x64xbf16>) -> tensor<96x2048x512xbf16>
  %t = stablehlo.tanh %s : tensor<96x2048x512xbf16>
  %o = stablehlo.dot_general %t, %v, batching_dims = [0] x [0], contracting_dims = [2] x [1] : (tensor<96x2048x512xbf16>, tensor<96x512x64xbf16>) -> tensor<96x2048x64xbf16>
  return %o : tensor<96x2048x64xbf16>
}

// CHECK{LITERAL}: frame 0
// CHECK-NEXT{LITERAL}: pattern 0 (find_chains): 3 ops, 3 inputs, 1 outputs
// CHECK-NEXT{LITERAL}:   inputs   %arg0: tensor<96x2048x64xbf16>, %arg1: tensor<96x512x64xbf16>, %arg2: tensor<96x512x64xbf16>
// CHECK-NEXT{LITERAL}:   %0 = stablehlo.dot_general %arg0, %arg1 {lhs_batching_dimensions = (0,), rhs_batching_dimensions = (0,), lhs_contracting_dimensions = (2,), rhs_contracting_dimensions = (2,)} : tensor<96x2048x512xbf16>  // -:5
// CHECK-NEXT{LITERAL}:   %1 = stablehlo.tanh %0 : tensor<96x2048x512xbf16>  // -:6
// CHECK-NEXT{LITERAL}:   %2 = stablehlo.dot_general %1, %arg2 {lhs_batching_dimensions = (0,), rhs_batching_dimensions = (0,), lhs_contracting_dimensions = (2,), rhs_contracting_dimensions = (1,)} : tensor<96x2048x64xbf16>  // -:7
// CHECK-NEXT{LITERAL}:   outputs  %2
// CHECK-NEXT{LITERAL}:   wanted   dot_general_0[GRID-THREAD_64, GRID, THREAD_128-CTA, CTA]S;
// CHECK-NEXT{LITERAL}:   wanted   convert_0[GRID-THREAD_64, GRID, CTA]S;
// CHECK-NEXT{LITERAL}:   wanted   dot_general_1[GRID-THREAD_64, GRID, CTA, CTA];
