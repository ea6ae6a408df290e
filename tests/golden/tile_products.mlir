// RUN: jstitch opt %s --passes plan_layers,tile_products --emit kernels --tune off | filecheck %s
// Two products in one kernel, by tiles of registers: what is between them is made 32 rows at a time.

func.func @main(%q: tensor<2x32x16xf32>, %k: tensor<2x48x16xf32>, %v: tensor<2x48x24xf32>) -> tensor<2x32x24xf32> {
  %s = stablehlo.dot_general %q, %k, batching_dims = [0] x [0], contracting_dims = [2] x [2] : (tensor<2x32x16xf32>, tensor<2x48x16xf32>) -> tensor<2x32x48xf32>
  %p = stablehlo.tanh %s : tensor<2x32x48xf32>
  %o = stablehlo.dot_general %p, %v, batching_dims = [0] x [0], contracting_dims = [2] x [1] : (tensor<2x32x48xf32>, tensor<2x48x24xf32>) -> tensor<2x32x24xf32>
  return %o : tensor<2x32x24xf32>
}

// CHECK{LITERAL}: kernel kernel_elementwise_0
// CHECK-NEXT{LITERAL}:   argument a0: tensor<2x32x16xf32>
// CHECK-NEXT{LITERAL}:   argument a1: tensor<2x48x16xf32>
// CHECK-NEXT{LITERAL}:   argument a2: tensor<2x48x24xf32>
// CHECK-NEXT{LITERAL}:   result o0: tensor<2x32x24xf32>
// CHECK-NEXT{LITERAL}:   dot_general_0[GRID_2-THREAD_32, GRID, THREAD, THREAD]S;
// CHECK-NEXT{LITERAL}:   tanh_0[GRID_2-THREAD_32, GRID, THREAD]S;
// CHECK-NEXT{LITERAL}:   dot_general_1[GRID_2-THREAD_32, GRID, THREAD, THREAD];
// CHECK-NEXT{LITERAL}:   arena: 45056 bytes per program, scratch: 0 bytes
// CHECK-NEXT{LITERAL}:   arena t0: tensor<32x48xf32> bytes [0, 6144)
// CHECK-NEXT{LITERAL}:   arena t1: tensor<32x48xf32> bytes [6144, 12288)
// CHECK-NEXT{LITERAL}:   arena panel: tensor<256x32xf32> bytes [12288, 45056)
// CHECK-NEXT{LITERAL}:   phase 0
// CHECK-NEXT{LITERAL}:     lane: 64 rows, 32 per step, 2 programs, work 153600
// CHECK-NEXT{LITERAL}:       stage 0: reduce add
// CHECK-NEXT{LITERAL}:         // broadcast_in_dim, multiply, reduce: -:6
// CHECK-NEXT{LITERAL}:         by tiles of registers: t0[0][32 by 48, 48 by 1] = a0[q * 512][32 by 16, 16 by 1] * a1[q * 768][16 by 1, 48 by 16], packed in panel
// CHECK-NEXT{LITERAL}:         for r in [0, 32):
// CHECK-NEXT{LITERAL}:           for i2 in [0, 48):
// CHECK-NEXT{LITERAL}:             acc3 = float32(0.0)
// CHECK-NEXT{LITERAL}:             for i3 in [0, 16):
// CHECK-NEXT{LITERAL}:               v0 = a0[r * 16 + i3]
// CHECK-NEXT{LITERAL}:               v1 = a1[quotient(r, 32) * 768 + i2 * 16 + i3]
// CHECK-NEXT{LITERAL}:               v2 = v0 * v1
// CHECK-NEXT{LITERAL}:               acc3 = add_reassoc(acc3, v2)
// CHECK-NEXT{LITERAL}:             t0[-q * 1536 + r * 48 + i2] = acc3
// CHECK-NEXT{LITERAL}:       stage 1: tanh
// CHECK-NEXT{LITERAL}:         // tanh: -:6
// CHECK-NEXT{LITERAL}:         for r in [0, 32):
// CHECK-NEXT{LITERAL}:           for i2 in [0, 48):
// CHECK-NEXT{LITERAL}:             v4 = t0[-q * 1536 + r * 48 + i2]
// CHECK-NEXT{LITERAL}:             v5 = tanh(v4)
// CHECK-NEXT{LITERAL}:             t1[-q * 1536 + r * 48 + i2] = v5
// CHECK-NEXT{LITERAL}:       stage 2: reduce add
// CHECK-NEXT{LITERAL}:         // broadcast_in_dim, multiply, reduce: -:6
// CHECK-NEXT{LITERAL}:         by tiles of registers: o0[q * 768][32 by 24, 24 by 1] = t1[0][32 by 48, 48 by 1] * a2[q * 1152][48 by 24, 24 by 1], packed in panel
// CHECK-NEXT{LITERAL}:         for r in [0, 32):
// CHECK-NEXT{LITERAL}:           for i2 in [0, 24):
// CHECK-NEXT{LITERAL}:             acc9 = float32(0.0)
// CHECK-NEXT{LITERAL}:             for i3 in [0, 48):
// CHECK-NEXT{LITERAL}:               v6 = t1[-q * 1536 + r * 48 + i3]
// CHECK-NEXT{LITERAL}:               v7 = a2[quotient(r, 32) * 1152 + i3 * 24 + i2]
// CHECK-NEXT{LITERAL}:               v8 = v6 * v7
// CHECK-NEXT{LITERAL}:               acc9 = add_reassoc(acc9, v8)
// CHECK-NEXT{LITERAL}:             o0[r * 24 + i2] = acc9
