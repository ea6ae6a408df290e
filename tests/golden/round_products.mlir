// RUN: jstitch opt %s --target h200 --passes plan_layers,tile_products,round_products --emit kernels --tune off | filecheck %s
// What the first product makes is stored as bf16 at once: no tile of f32, and no loop that copies it.

func.func @main(%a: tensor<32x16xbf16>, %b: tensor<16x48xbf16>, %c: tensor<48x24xbf16>) -> tensor<32x24xbf16> {
  %s = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : (tensor<32x16xbf16>, tensor<16x48xbf16>) -> tensor<32x48xbf16>
  %o = stablehlo.dot_general %s, %c, contracting_dims = [1] x [0] : (tensor<32x48xbf16>, tensor<48x24xbf16>) -> tensor<32x24xbf16>
  return %o : tensor<32x24xbf16>
}

// CHECK{LITERAL}: kernel kernel_move_0
// CHECK-NEXT{LITERAL}:   argument a0: tensor<32x16xbf16>
// CHECK-NEXT{LITERAL}:   argument a1: tensor<16x48xbf16>
// CHECK-NEXT{LITERAL}:   argument a2: tensor<48x24xbf16>
// CHECK-NEXT{LITERAL}:   result o0: tensor<32x24xbf16>
// CHECK-NEXT{LITERAL}:   dot_general_0[GRID-THREAD_16, CTA, CTA]S;
// CHECK-NEXT{LITERAL}:   convert_0[GRID-THREAD_16, CTA]S;
// CHECK-NEXT{LITERAL}:   dot_general_1[GRID-THREAD_16, CTA, CTA];
// CHECK-NEXT{LITERAL}:   arena: 4608 bytes per program, scratch: 0 bytes
// CHECK-NEXT{LITERAL}:   arena t0: tensor<16x48xf32> bytes [0, 3072)
// CHECK-NEXT{LITERAL}:   arena t1: tensor<16x48xbf16> bytes [3072, 4608)
// CHECK-NEXT{LITERAL}:   arena t2: tensor<16x24xf32> bytes [0, 1536)
// CHECK-NEXT{LITERAL}:   phase 0
// CHECK-NEXT{LITERAL}:     lane: 32 rows, 16 per step, 2 programs, work 62976
// CHECK-NEXT{LITERAL}:       stage 0: reduce add
// CHECK-NEXT{LITERAL}:         by tiles of registers: t1[0][16 by 48, 48 by 1] = a0[q * 256][16 by 16, 16 by 1] * a1[0][16 by 48, 48 by 1]
// CHECK-NEXT{LITERAL}:         for r in [0, 16):
// CHECK-NEXT{LITERAL}:           for i1 in [0, 48):
// CHECK-NEXT{LITERAL}:             acc3 = float32(0.0)
// CHECK-NEXT{LITERAL}:             for i2 in [0, 16):
// CHECK-NEXT{LITERAL}:               v0 = a0[r * 16 + i2]
// CHECK-NEXT{LITERAL}:               v1 = a1[i2 * 48 + i1]
// CHECK-NEXT{LITERAL}:               v2 = v0 * v1
// CHECK-NEXT{LITERAL}:               acc3 = add_reassoc(acc3, v2)
// CHECK-NEXT{LITERAL}:             v5 = convert_bf16(acc3)
// CHECK-NEXT{LITERAL}:             t1[-q * 768 + r * 48 + i1] = v5
// CHECK-NEXT{LITERAL}:       stage 1: reduce add
// CHECK-NEXT{LITERAL}:         by tiles of registers: o0[q * 384][16 by 24, 24 by 1] = t1[0][16 by 48, 48 by 1] * a2[0][48 by 24, 24 by 1]
// CHECK-NEXT{LITERAL}:         for r in [0, 16):
// CHECK-NEXT{LITERAL}:           for i1 in [0, 24):
// CHECK-NEXT{LITERAL}:             acc9 = float32(0.0)
// CHECK-NEXT{LITERAL}:             for i2 in [0, 48):
// CHECK-NEXT{LITERAL}:               v6 = t1[-q * 768 + r * 48 + i2]
// CHECK-NEXT{LITERAL}:               v7 = a2[i2 * 24 + i1]
// CHECK-NEXT{LITERAL}:               v8 = v6 * v7
// CHECK-NEXT{LITERAL}:               acc9 = add_reassoc(acc9, v8)
// CHECK-NEXT{LITERAL}:             o0[r * 24 + i1] = acc9
