// RUN: jstitch opt %s --passes rewrite_argmax | filecheck %s
// jnp.argmax: a reduction that carries a value and its index.

func.func @main(%x: tensor<4x8xf32>) -> tensor<4xi32> {
  %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %place = stablehlo.iota dim = 1 : tensor<4x8xi32>
  %r:2 = stablehlo.reduce(%x init: %low), (%place init: %zero) across dimensions = [1]
    : (tensor<4x8xf32>, tensor<4x8xi32>, tensor<f32>, tensor<i32>) -> (tensor<4xf32>, tensor<4xi32>)
    reducer(%a: tensor<f32>, %b: tensor<f32>) (%i: tensor<i32>, %j: tensor<i32>) {
      %gt = stablehlo.compare GT, %a, %b, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %nan = stablehlo.compare NE, %a, %a, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %first = stablehlo.or %gt, %nan : tensor<i1>
      %eq = stablehlo.compare EQ, %a, %b, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %lt = stablehlo.compare LT, %i, %j, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      %tie = stablehlo.and %eq, %lt : tensor<i1>
      %left = stablehlo.or %first, %tie : tensor<i1>
      %v = stablehlo.select %first, %a, %b : tensor<i1>, tensor<f32>
      %k = stablehlo.select %left, %i, %j : tensor<i1>, tensor<i32>
      stablehlo.return %v, %k : tensor<f32>, tensor<i32>
    }
  return %r#1 : tensor<4xi32>
}

// CHECK{LITERAL}: graph(%arg0: tensor<4x8xf32>) -> (%19) {
// CHECK-NEXT{LITERAL}:   %0 = stablehlo.constant {value = dense<-inf>} : tensor<f32>  // -:5
// CHECK-NEXT{LITERAL}:   %1 = stablehlo.constant {value = dense<0>} : tensor<i32>  // -:6
// CHECK-NEXT{LITERAL}:   %2 = stablehlo.iota {iota_dimension = 1} : tensor<4x8xi32>  // -:7
// CHECK-NEXT{LITERAL}:   %3 = stablehlo.reduce %arg0, %0 {dimensions = (1,), monoid = stablehlo.maximum} : tensor<4xf32>  // -:8
// CHECK-NEXT{LITERAL}:     region 0(%arg1: tensor<f32>, %arg2: tensor<f32>) -> (%4) {
// CHECK-NEXT{LITERAL}:       %4 = stablehlo.maximum %arg1, %arg2 : tensor<f32>  // -:8
// CHECK-NEXT{LITERAL}:     }
// CHECK-NEXT{LITERAL}:   %5 = stablehlo.broadcast_in_dim %3 {broadcast_dimensions = (0,)} : tensor<4x8xf32>  // -:8
// CHECK-NEXT{LITERAL}:   %6 = stablehlo.compare %arg0, %5 {comparison_direction = EQ} : tensor<4x8xi1>  // -:8
// CHECK-NEXT{LITERAL}:   %7 = stablehlo.constant {value = dense<2147483647>} : tensor<4x8xi32>  // -:8
// CHECK-NEXT{LITERAL}:   %8 = stablehlo.constant {value = dense<8>} : tensor<4x8xi32>  // -:8
// CHECK-NEXT{LITERAL}:   %9 = stablehlo.add %2, %8 : tensor<4x8xi32>  // -:8
// CHECK-NEXT{LITERAL}:   %10 = stablehlo.compare %arg0, %arg0 {comparison_direction = NE} : tensor<4x8xi1>  // -:8
// CHECK-NEXT{LITERAL}:   %11 = stablehlo.select %6, %9, %7 : tensor<4x8xi32>  // -:8
// CHECK-NEXT{LITERAL}:   %12 = stablehlo.select %10, %2, %11 : tensor<4x8xi32>  // -:8
// CHECK-NEXT{LITERAL}:   %13 = stablehlo.constant {value = dense<2147483647>} : tensor<i32>  // -:8
// CHECK-NEXT{LITERAL}:   %14 = stablehlo.reduce %12, %13 {dimensions = (1,), monoid = stablehlo.minimum} : tensor<4xi32>  // -:8
// CHECK-NEXT{LITERAL}:     region 0(%arg3: tensor<i32>, %arg4: tensor<i32>) -> (%15) {
// CHECK-NEXT{LITERAL}:       %15 = stablehlo.minimum %arg3, %arg4 : tensor<i32>  // -:8
// CHECK-NEXT{LITERAL}:     }
// CHECK-NEXT{LITERAL}:   %16 = stablehlo.constant {value = dense<8>} : tensor<4xi32>  // -:8
// CHECK-NEXT{LITERAL}:   %17 = stablehlo.subtract %14, %16 : tensor<4xi32>  // -:8
// CHECK-NEXT{LITERAL}:   %18 = stablehlo.compare %14, %16 {comparison_direction = GE} : tensor<4xi1>  // -:8
// CHECK-NEXT{LITERAL}:   %19 = stablehlo.select %18, %17, %14 : tensor<4xi32>  // -:8
// CHECK-NEXT{LITERAL}: }
