// RUN: jstitch opt %s --passes "plan_layers,pack_patterns,divide_phases{parameters=5}" --emit kernels --target h200 --tune off | filecheck %s
// Four sums of rows read and write eight buffers: two launches of two where five are the most.

func.func @main(%a: tensor<64x512xf32>, %b: tensor<64x512xf32>, %c: tensor<64x512xf32>, %d: tensor<64x512xf32>)
    -> (tensor<64xf32>, tensor<64xf32>, tensor<64xf32>, tensor<64xf32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %as = stablehlo.reduce(%a init: %zero) applies stablehlo.add across dimensions = [1]
    : (tensor<64x512xf32>, tensor<f32>) -> tensor<64xf32>
  %bs = stablehlo.reduce(%b init: %zero) applies stablehlo.add across dimensions = [1]
    : (tensor<64x512xf32>, tensor<f32>) -> tensor<64xf32>
  %cs = stablehlo.reduce(%c init: %zero) applies stablehlo.add across dimensions = [1]
    : (tensor<64x512xf32>, tensor<f32>) -> tensor<64xf32>
  %ds = stablehlo.reduce(%d init: %zero) applies stablehlo.add across dimensions = [1]
    : (tensor<64x512xf32>, tensor<f32>) -> tensor<64xf32>
  return %as, %bs, %cs, %ds : tensor<64xf32>, tensor<64xf32>, tensor<64xf32>, tensor<64xf32>
}

// CHECK{LITERAL}: kernel kernel_row_0
// CHECK-NEXT{LITERAL}:   argument a0: tensor<64x512xf32>
// CHECK-NEXT{LITERAL}:   argument a1: tensor<64x512xf32>
// CHECK-NEXT{LITERAL}:   argument a2: tensor<64x512xf32>
// CHECK-NEXT{LITERAL}:   argument a3: tensor<64x512xf32>
// CHECK-NEXT{LITERAL}:   result o0: tensor<64xf32>
// CHECK-NEXT{LITERAL}:   result o1: tensor<64xf32>
// CHECK-NEXT{LITERAL}:   result o2: tensor<64xf32>
// CHECK-NEXT{LITERAL}:   result o3: tensor<64xf32>
// CHECK-NEXT{LITERAL}:   reduce_0[GRID, CTA];
// CHECK-NEXT{LITERAL}:   reduce_1[GRID, CTA];
// CHECK-NEXT{LITERAL}:   reduce_2[GRID, CTA];
// CHECK-NEXT{LITERAL}:   reduce_3[GRID, CTA];
// CHECK-NEXT{LITERAL}:   arena: 64 bytes per program, scratch: 0 bytes
// CHECK-NEXT{LITERAL}:   arena t0: tensor<1x1xf32> bytes [0, 4)
// CHECK-NEXT{LITERAL}:   arena t0: tensor<1x1xf32> bytes [0, 4)
// CHECK-NEXT{LITERAL}:   arena t0: tensor<1x1xf32> bytes [0, 4)
// CHECK-NEXT{LITERAL}:   arena t0: tensor<1x1xf32> bytes [0, 4)
// CHECK-NEXT{LITERAL}:   phase 0
// CHECK-NEXT{LITERAL}:     lane: 64 rows, 1 per step, 8 programs, work 32768
// CHECK-NEXT{LITERAL}:       stage 0: reduce add
// CHECK-NEXT{LITERAL}:         // reduce: -:7
// CHECK-NEXT{LITERAL}:         for r in [0, 1):
// CHECK-NEXT{LITERAL}:           acc1 = float32(0.0)
// CHECK-NEXT{LITERAL}:           for i1 in [0, 512):
// CHECK-NEXT{LITERAL}:             v0 = a0[r * 512 + i1]
// CHECK-NEXT{LITERAL}:             acc1 = add_reassoc(acc1, v0)
// CHECK-NEXT{LITERAL}:           t0[0] = acc1
// CHECK-NEXT{LITERAL}:           o0[r] = acc1
// CHECK-NEXT{LITERAL}:     lane: 64 rows, 1 per step, 8 programs, work 32768
// CHECK-NEXT{LITERAL}:       stage 0: reduce add
// CHECK-NEXT{LITERAL}:         // reduce: -:9
// CHECK-NEXT{LITERAL}:         for r in [0, 1):
// CHECK-NEXT{LITERAL}:           acc1 = float32(0.0)
// CHECK-NEXT{LITERAL}:           for i1 in [0, 512):
// CHECK-NEXT{LITERAL}:             v0 = a1[r * 512 + i1]
// CHECK-NEXT{LITERAL}:             acc1 = add_reassoc(acc1, v0)
// CHECK-NEXT{LITERAL}:           t0[0] = acc1
// CHECK-NEXT{LITERAL}:           o1[r] = acc1
// CHECK-NEXT{LITERAL}:   phase 1
// CHECK-NEXT{LITERAL}:     lane: 64 rows, 1 per step, 8 programs, work 32768
// CHECK-NEXT{LITERAL}:       stage 0: reduce add
// CHECK-NEXT{LITERAL}:         // reduce: -:11
// CHECK-NEXT{LITERAL}:         for r in [0, 1):
// CHECK-NEXT{LITERAL}:           acc1 = float32(0.0)
// CHECK-NEXT{LITERAL}:           for i1 in [0, 512):
// CHECK-NEXT{LITERAL}:             v0 = a2[r * 512 + i1]
// CHECK-NEXT{LITERAL}:             acc1 = add_reassoc(acc1, v0)
// CHECK-NEXT{LITERAL}:           t0[0] = acc1
// CHECK-NEXT{LITERAL}:           o2[r] = acc1
// CHECK-NEXT{LITERAL}:     lane: 64 rows, 1 per step, 8 programs, work 32768
// CHECK-NEXT{LITERAL}:       stage 0: reduce add
// CHECK-NEXT{LITERAL}:         // reduce: -:13
// CHECK-NEXT{LITERAL}:         for r in [0, 1):
// CHECK-NEXT{LITERAL}:           acc1 = float32(0.0)
// CHECK-NEXT{LITERAL}:           for i1 in [0, 512):
// CHECK-NEXT{LITERAL}:             v0 = a3[r * 512 + i1]
// CHECK-NEXT{LITERAL}:             acc1 = add_reassoc(acc1, v0)
// CHECK-NEXT{LITERAL}:           t0[0] = acc1
// CHECK-NEXT{LITERAL}:           o3[r] = acc1
