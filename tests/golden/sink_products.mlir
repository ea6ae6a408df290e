// RUN: jstitch opt %s --passes sink_products | filecheck %s
// The gradient of a cell's weights, and of what it is given: each turn leaves what is multiplied behind the loop, once.

func.func @main(%x: tensor<9x4x8xf32>, %w: tensor<8x8xf32>, %g: tensor<8x8xf32>, %u: tensor<9x4x8xf32>)
    -> (tensor<8x8xf32>, tensor<9x4x8xf32>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %0:3 = stablehlo.while(%i = %zero, %s = %g, %y = %u) : tensor<i32>, tensor<8x8xf32>, tensor<9x4x8xf32>
  cond {
    %limit = stablehlo.constant dense<9> : tensor<i32>
    %more = stablehlo.compare LT, %i, %limit, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %one = stablehlo.constant dense<1> : tensor<i32>
    %first = stablehlo.constant dense<0> : tensor<i32>
    %part = stablehlo.dynamic_slice %x, %i, %first, %first, sizes = [1, 4, 8]
      : (tensor<9x4x8xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x4x8xf32>
    %now = stablehlo.reshape %part : (tensor<1x4x8xf32>) -> tensor<4x8xf32>
    %d = stablehlo.tanh %now : tensor<4x8xf32>
    %p = stablehlo.dot_general %now, %d, contracting_dims = [0] x [0]
      : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<8x8xf32>
    %total = stablehlo.add %s, %p : tensor<8x8xf32>
    %q = stablehlo.dot_general %d, %w, contracting_dims = [1] x [1]
      : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
    %left = stablehlo.reshape %q : (tensor<4x8xf32>) -> tensor<1x4x8xf32>
    %stack = stablehlo.dynamic_update_slice %y, %left, %i, %first, %first
      : (tensor<9x4x8xf32>, tensor<1x4x8xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<9x4x8xf32>
    %next = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %next, %total, %stack : tensor<i32>, tensor<8x8xf32>, tensor<9x4x8xf32>
  }
  return %0#1, %0#2 : tensor<8x8xf32>, tensor<9x4x8xf32>
}
