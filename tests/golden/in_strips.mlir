// RUN: jstitch opt %s --passes plan_layers,in_strips --emit kernels --target h200 --tune off | filecheck %s
// Columns are normalised in two launches instead of three.

func.func @main(%x: tensor<4096x256xf32>) -> tensor<4096x256xf32> {
  %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %m = stablehlo.reduce(%x init: %low) applies stablehlo.maximum across dimensions = [0]
    : (tensor<4096x256xf32>, tensor<f32>) -> tensor<256xf32>
  %mb = stablehlo.broadcast_in_dim %m, dims = [1] : (tensor<256xf32>) -> tensor<4096x256xf32>
  %c = stablehlo.subtract %x, %mb : tensor<4096x256xf32>
  %e = stablehlo.exponential %c : tensor<4096x256xf32>
  %s = stablehlo.reduce(%e init: %zero) applies stablehlo.add across dimensions = [0]
    : (tensor<4096x256xf32>, tensor<f32>) -> tensor<256xf32>
  %sb = stablehlo.broadcast_in_dim %s, dims = [1] : (tensor<256xf32>) -> tensor<4096x256xf32>
  %y = stablehlo.divide %e, %sb : tensor<4096x256xf32>
  return %y : tensor<4096x256xf32>
}

// CHECK{LITERAL}: kernel kernel_col_0
// CHECK-NEXT{LITERAL}:   argument a0: tensor<4096x256xf32>
// CHECK-NEXT{LITERAL}:   result o0: tensor<4096x256xf32>
// CHECK-NEXT{LITERAL}:   scratch s0: tensor<264x32xf32>
// CHECK-NEXT{LITERAL}:   scratch s1: tensor<264x32xf32>
// CHECK-NEXT{LITERAL}:   reduce_0.partial[GRID, CTA];
// CHECK-NEXT{LITERAL}:   reduce_0[CTA, CTA];
// CHECK-NEXT{LITERAL}:   multiply_0[CTA];
// CHECK-NEXT{LITERAL}:   divide_0[GRID, CTA];
// CHECK-NEXT{LITERAL}:   arena: 2560 bytes per program, scratch: 475136 bytes
// CHECK-NEXT{LITERAL}:   arena t0: tensor<1x32xf32> bytes [2048, 2176)
// CHECK-NEXT{LITERAL}:   arena s2: tensor<1x32xf32> bytes [2304, 2432)
// CHECK-NEXT{LITERAL}:   arena t1: tensor<1x32xf32> bytes [2176, 2304)
// CHECK-NEXT{LITERAL}:   arena s3: tensor<1x32xf32> bytes [2432, 2560)
// CHECK-NEXT{LITERAL}:   phase 0
// CHECK-NEXT{LITERAL}:     lane: 4096 rows, 1 per step, 264 programs, work 1048576
// CHECK-NEXT{LITERAL}:       33 bands of rows, 8 strips of 32 columns, 0 stages before the rows
// CHECK-NEXT{LITERAL}:       stage 0 (once): start the partial sums
// CHECK-NEXT{LITERAL}:         for i in [0, 32):
// CHECK-NEXT{LITERAL}:           s0[p * 32 + i] = float32(-inf)
// CHECK-NEXT{LITERAL}:       stage 1 (once): start the partial sums
// CHECK-NEXT{LITERAL}:         for i in [0, 32):
// CHECK-NEXT{LITERAL}:           s1[p * 32 + i] = float32(0.0)
// CHECK-NEXT{LITERAL}:       stage 2: partial_reduce
// CHECK-NEXT{LITERAL}:         // partial_reduce: -:7
// CHECK-NEXT{LITERAL}:         for r in [0, 1):
// CHECK-NEXT{LITERAL}:           for i1 in [0, 32):
// CHECK-NEXT{LITERAL}:             v0 = a0[r * 256 + strip * 32 + i1]
// CHECK-NEXT{LITERAL}:             v1 = s0[p * 32 + i1]
// CHECK-NEXT{LITERAL}:             v2 = s1[p * 32 + i1]
// CHECK-NEXT{LITERAL}:             v3 = v1 - v0
// CHECK-NEXT{LITERAL}:             v4 = abs_(v3)
// CHECK-NEXT{LITERAL}:             v5 = -v4
// CHECK-NEXT{LITERAL}:             v6 = v1 == v0
// CHECK-NEXT{LITERAL}:             v7 = exp(v5)
// CHECK-NEXT{LITERAL}:             v8 = select(v6, float32(1.0), v7)
// CHECK-NEXT{LITERAL}:             v9 = v1 >= v0
// CHECK-NEXT{LITERAL}:             v10 = select(v9, v2, float32(1.0))
// CHECK-NEXT{LITERAL}:             v11 = select(v9, float32(1.0), v2)
// CHECK-NEXT{LITERAL}:             v12 = v11 * v8
// CHECK-NEXT{LITERAL}:             v13 = v10 + v12
// CHECK-NEXT{LITERAL}:             v14 = maximum(v1, v0)
// CHECK-NEXT{LITERAL}:             v15 = v14
// CHECK-NEXT{LITERAL}:             v16 = v13
// CHECK-NEXT{LITERAL}:             s0[p * 32 + i1] = v15
// CHECK-NEXT{LITERAL}:             s1[p * 32 + i1] = v16
// CHECK-NEXT{LITERAL}:   phase 1
// CHECK-NEXT{LITERAL}:     lane: 4096 rows, 1 per step, 264 programs, work 4194304
// CHECK-NEXT{LITERAL}:       33 bands of rows, 8 strips of 32 columns, 2 stages before the rows
// CHECK-NEXT{LITERAL}:       stage 0 (once): reduce
// CHECK-NEXT{LITERAL}:         // reduce: -:7
// CHECK-NEXT{LITERAL}:         for i1 in [0, 32):
// CHECK-NEXT{LITERAL}:           acc2 = float32(-inf)
// CHECK-NEXT{LITERAL}:           acc3 = float32(0.0)
// CHECK-NEXT{LITERAL}:           for i0 in [0, 33):
// CHECK-NEXT{LITERAL}:             v0 = s0[i0 * 256 + strip * 32 + i1]
// CHECK-NEXT{LITERAL}:             v1 = s1[i0 * 256 + strip * 32 + i1]
// CHECK-NEXT{LITERAL}:             v4 = acc2 - v0
// CHECK-NEXT{LITERAL}:             v5 = abs_(v4)
// CHECK-NEXT{LITERAL}:             v6 = -v5
// CHECK-NEXT{LITERAL}:             v7 = acc2 == v0
// CHECK-NEXT{LITERAL}:             v8 = exp(v6)
// CHECK-NEXT{LITERAL}:             v9 = select(v7, float32(1.0), v8)
// CHECK-NEXT{LITERAL}:             v10 = acc2 >= v0
// CHECK-NEXT{LITERAL}:             v11 = select(v10, acc3, v1)
// CHECK-NEXT{LITERAL}:             v12 = select(v10, v1, acc3)
// CHECK-NEXT{LITERAL}:             v13 = v12 * v9
// CHECK-NEXT{LITERAL}:             v14 = v11 + v13
// CHECK-NEXT{LITERAL}:             v15 = maximum(acc2, v0)
// CHECK-NEXT{LITERAL}:             acc2 = v15
// CHECK-NEXT{LITERAL}:             acc3 = v14
// CHECK-NEXT{LITERAL}:           t0[i1] = acc2
// CHECK-NEXT{LITERAL}:           s2[i1] = acc2
// CHECK-NEXT{LITERAL}:           t1[i1] = acc3
// CHECK-NEXT{LITERAL}:       stage 1 (once): multiply
// CHECK-NEXT{LITERAL}:         // subtract, exponential, multiply: -:12
// CHECK-NEXT{LITERAL}:         for i0 in [0, 32):
// CHECK-NEXT{LITERAL}:           v28 = t1[i0]
// CHECK-NEXT{LITERAL}:           v29 = t0[i0]
// CHECK-NEXT{LITERAL}:           v30 = v29 - v29
// CHECK-NEXT{LITERAL}:           v31 = exp(v30)
// CHECK-NEXT{LITERAL}:           v32 = v28 * v31
// CHECK-NEXT{LITERAL}:           s3[i0] = v32
// CHECK-NEXT{LITERAL}:       stage 2: divide
// CHECK-NEXT{LITERAL}:         // broadcast_in_dim: -:9
// CHECK-NEXT{LITERAL}:         // subtract: -:10
// CHECK-NEXT{LITERAL}:         // exponential: -:11
// CHECK-NEXT{LITERAL}:         // broadcast_in_dim: -:14
// CHECK-NEXT{LITERAL}:         // divide: -:15
// CHECK-NEXT{LITERAL}:         for r in [0, 1):
// CHECK-NEXT{LITERAL}:           for i1 in [0, 32):
// CHECK-NEXT{LITERAL}:             v0 = a0[r * 256 + strip * 32 + i1]
// CHECK-NEXT{LITERAL}:             v1 = s2[i1]
// CHECK-NEXT{LITERAL}:             v2 = v0 - v1
// CHECK-NEXT{LITERAL}:             v3 = exp(v2)
// CHECK-NEXT{LITERAL}:             v4 = s3[i1]
// CHECK-NEXT{LITERAL}:             v5 = v3 / v4
// CHECK-NEXT{LITERAL}:             o0[r * 256 + strip * 32 + i1] = v5
