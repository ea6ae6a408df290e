// RUN: jstitch opt %s --passes hoist_products --target h200 | filecheck %s
// On a GPU: what each turn multiplies of what it is given is one product of all turns, before the loop.

func.func @main(%x: tensor<9x4x8xf32>, %w: tensor<8x16xf32>, %h: tensor<4x16xf32>) -> tensor<4x16xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %0:2 = stablehlo.while(%i = %zero, %c = %h) : tensor<i32>, tensor<4x16xf32>
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
    %z = stablehlo.dot_general %now, %w, contracting_dims = [1] x [0]
      : (tensor<4x8xf32>, tensor<8x16xf32>) -> tensor<4x16xf32>
    %a = stablehlo.add %c, %z : tensor<4x16xf32>
    %b = stablehlo.tanh %a : tensor<4x16xf32>
    %next = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %next, %b : tensor<i32>, tensor<4x16xf32>
  }
  return %0#1 : tensor<4x16xf32>
}
