// RUN: jstitch opt %s --passes plan_layers,pair_halves --emit kernels --tune off | filecheck %s
// bf16 elements are read and written two at a time.

func.func @main(%x: tensor<64x512xbf16>, %y: tensor<64x512xbf16>) -> tensor<64x512xbf16> {
  %t = stablehlo.tanh %x : tensor<64x512xbf16>
  %z = stablehlo.multiply %t, %y : tensor<64x512xbf16>
  return %z : tensor<64x512xbf16>
}

// CHECK{LITERAL}: kernel kernel_elementwise_0
// CHECK-NEXT{LITERAL}:   argument a0: tensor<64x512xbf16>
// CHECK-NEXT{LITERAL}:   argument a1: tensor<64x512xbf16>
// CHECK-NEXT{LITERAL}:   result o0: tensor<64x512xbf16>
// CHECK-NEXT{LITERAL}:   multiply_0[GRID_2, GRID];
// CHECK-NEXT{LITERAL}:   arena: 0 bytes per program, scratch: 0 bytes
// CHECK-NEXT{LITERAL}:   phase 0
// CHECK-NEXT{LITERAL}:     lane: 32768 rows, 1 per step, 2 programs, work 32768
// CHECK-NEXT{LITERAL}:       stage 0: multiply
// CHECK-NEXT{LITERAL}:         // tanh: -:5
// CHECK-NEXT{LITERAL}:         // multiply: -:6
// CHECK-NEXT{LITERAL}:         for r in [0, 1), 2 rows each:
// CHECK-NEXT{LITERAL}:           v4 = a0[r * 2, +1]
// CHECK-NEXT{LITERAL}:           v0 = low_bf16(v4)
// CHECK-NEXT{LITERAL}:           v1 = tanh(v0)
// CHECK-NEXT{LITERAL}:           v7 = a1[r * 2, +1]
// CHECK-NEXT{LITERAL}:           v2 = low_bf16(v7)
// CHECK-NEXT{LITERAL}:           v3 = v1 * v2
// CHECK-NEXT{LITERAL}:           v5 = high_bf16(v4)
// CHECK-NEXT{LITERAL}:           v6 = tanh(v5)
// CHECK-NEXT{LITERAL}:           v8 = high_bf16(v7)
// CHECK-NEXT{LITERAL}:           v9 = v6 * v8
// CHECK-NEXT{LITERAL}:           o0[r * 2, +1] = v3, v9
