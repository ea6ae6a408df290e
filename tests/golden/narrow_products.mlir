// RUN: jstitch opt %s --passes narrow_products --target h200 | filecheck %s
// A query that is scaled once it is wide: the product is one of bf16, and its result is scaled.

func.func @main(%q: tensor<64x16xbf16>, %k: tensor<48x16xbf16>) -> tensor<64x48xf32> {
  %a = stablehlo.convert %q : (tensor<64x16xbf16>) -> tensor<64x16xf32>
  %b = stablehlo.convert %k : (tensor<48x16xbf16>) -> tensor<48x16xf32>
  %c = stablehlo.constant dense<8.0> : tensor<64x16xf32>
  %s = stablehlo.divide %a, %c : tensor<64x16xf32>
  %z = stablehlo.dot_general %s, %b, contracting_dims = [1] x [1] : (tensor<64x16xf32>, tensor<48x16xf32>) -> tensor<64x48xf32>
  return %z : tensor<64x48xf32>
}

// CHECK{LITERAL}: graph(%arg0: tensor<64x16xbf16>, %arg1: tensor<48x16xbf16>) -> (%6) {
// CHECK-NEXT{LITERAL}:   %0 = stablehlo.convert %arg0 : tensor<64x16xf32>  // -:5
// CHECK-NEXT{LITERAL}:   %1 = stablehlo.convert %arg1 : tensor<48x16xf32>  // -:6
// CHECK-NEXT{LITERAL}:   %2 = stablehlo.constant {value = dense<8.0>} : tensor<64x16xf32>  // -:7
// CHECK-NEXT{LITERAL}:   %3 = stablehlo.divide %0, %2 : tensor<64x16xf32>  // -:8
// CHECK-NEXT{LITERAL}:   %4 = stablehlo.dot_general %arg0, %arg1 {lhs_batching_dimensions = (), rhs_batching_dimensions = (), lhs_contracting_dimensions = (1,), rhs_contracting_dimensions = (1,)} : tensor<64x48xf32>  // -:9
// CHECK-NEXT{LITERAL}:   %5 = stablehlo.constant {value = dense<8.0>} : tensor<64x48xf32>  // -:9
// CHECK-NEXT{LITERAL}:   %6 = stablehlo.divide %4, %5 : tensor<64x48xf32>  // -:9
// CHECK-NEXT{LITERAL}: }
