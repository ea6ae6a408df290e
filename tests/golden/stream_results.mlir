// RUN: jstitch opt %s --passes plan_layers,stream_results --emit kernels --tune off | filecheck %s
// A kernel much larger than the cache writes its result past the caches.

func.func @main(%x: tensor<65536x1024xf32>, %y: tensor<65536x1024xf32>) -> tensor<65536x1024xf32> {
  %t = stablehlo.tanh %x : tensor<65536x1024xf32>
  %z = stablehlo.add %t, %y : tensor<65536x1024xf32>
  return %z : tensor<65536x1024xf32>
}

// CHECK{LITERAL}: kernel kernel_elementwise_0
// CHECK-NEXT{LITERAL}:   argument a0: tensor<65536x1024xf32>
// CHECK-NEXT{LITERAL}:   argument a1: tensor<65536x1024xf32>
// CHECK-NEXT{LITERAL}:   result o0: tensor<65536x1024xf32>
// CHECK-NEXT{LITERAL}:   add_0[GRID_64, GRID];
// CHECK-NEXT{LITERAL}:   arena: 2112 bytes per program, scratch: 0 bytes
// CHECK-NEXT{LITERAL}:   phase 0
// CHECK-NEXT{LITERAL}:     lane: 67108864 rows, 1 per step, 64 programs, work 67108864
// CHECK-NEXT{LITERAL}:       stage 0: add
// CHECK-NEXT{LITERAL}:         // tanh: -:5
// CHECK-NEXT{LITERAL}:         // add: -:6
// CHECK-NEXT{LITERAL}:         for r in [0, 1):
// CHECK-NEXT{LITERAL}:           v0 = a0[r]
// CHECK-NEXT{LITERAL}:           v1 = tanh(v0)
// CHECK-NEXT{LITERAL}:           v2 = a1[r]
// CHECK-NEXT{LITERAL}:           v3 = v1 + v2
// CHECK-NEXT{LITERAL}:           w0[r - start] = v3  // w0 goes to o0[start] after loop 0
