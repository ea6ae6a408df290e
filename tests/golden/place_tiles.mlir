// RUN: jstitch opt %s --emit kernels --tune off | filecheck %s
// Three softmax-like steps: the third's tile stands in the bytes of the first's, which nobody reads any more.

func.func @main(%x: tensor<64x512xf32>, %y: tensor<64x512xf32>) -> tensor<64x512xf32> {
  %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %a = stablehlo.exponential %x : tensor<64x512xf32>
  %am = stablehlo.reduce(%a init: %low) applies stablehlo.maximum across dimensions = [1]
    : (tensor<64x512xf32>, tensor<f32>) -> tensor<64xf32>
  %ab = stablehlo.broadcast_in_dim %am, dims = [0] : (tensor<64xf32>) -> tensor<64x512xf32>
  %b = stablehlo.divide %a, %ab : tensor<64x512xf32>
  %c = stablehlo.exponential %b : tensor<64x512xf32>
  %cm = stablehlo.reduce(%c init: %low) applies stablehlo.maximum across dimensions = [1]
    : (tensor<64x512xf32>, tensor<f32>) -> tensor<64xf32>
  %cb = stablehlo.broadcast_in_dim %cm, dims = [0] : (tensor<64xf32>) -> tensor<64x512xf32>
  %d = stablehlo.divide %c, %cb : tensor<64x512xf32>
  %e = stablehlo.exponential %d : tensor<64x512xf32>
  %em = stablehlo.reduce(%e init: %low) applies stablehlo.maximum across dimensions = [1]
    : (tensor<64x512xf32>, tensor<f32>) -> tensor<64xf32>
  %eb = stablehlo.broadcast_in_dim %em, dims = [0] : (tensor<64xf32>) -> tensor<64x512xf32>
  %f = stablehlo.divide %e, %eb : tensor<64x512xf32>
  %g = stablehlo.add %f, %y : tensor<64x512xf32>
  return %g : tensor<64x512xf32>
}

// CHECK{LITERAL}: kernel kernel_row_0
// CHECK-NEXT{LITERAL}:   argument a0: tensor<64x512xf32>
// CHECK-NEXT{LITERAL}:   argument a1: tensor<64x512xf32>
// CHECK-NEXT{LITERAL}:   result o0: tensor<64x512xf32>
// CHECK-NEXT{LITERAL}:   exponential_0[GRID_2-THREAD_8, THREAD]S;
// CHECK-NEXT{LITERAL}:   reduce_0[GRID_2-THREAD_8, THREAD]S;
// CHECK-NEXT{LITERAL}:   exponential_1[GRID_2-THREAD_8, THREAD]S;
// CHECK-NEXT{LITERAL}:   reduce_1[GRID_2-THREAD_8, THREAD]S;
// CHECK-NEXT{LITERAL}:   exponential_2[GRID_2-THREAD_8, THREAD]S;
// CHECK-NEXT{LITERAL}:   reduce_2[GRID_2-THREAD_8, THREAD]S;
// CHECK-NEXT{LITERAL}:   add_0[GRID_2-THREAD_8, THREAD];
// CHECK-NEXT{LITERAL}:   arena: 32896 bytes per program, scratch: 0 bytes
// CHECK-NEXT{LITERAL}:   arena t0: tensor<8x512xf32> bytes [0, 16384)
// CHECK-NEXT{LITERAL}:   arena t1: tensor<8x1xf32> bytes [16384, 16416)
// CHECK-NEXT{LITERAL}:   arena t2: tensor<8x512xf32> bytes [16448, 32832)
// CHECK-NEXT{LITERAL}:   arena t3: tensor<8x1xf32> bytes [32832, 32864)
// CHECK-NEXT{LITERAL}:   arena t4: tensor<8x512xf32> bytes [0, 16384)
// CHECK-NEXT{LITERAL}:   arena t5: tensor<8x1xf32> bytes [16384, 16416)
// CHECK-NEXT{LITERAL}:   phase 0: 20,049 ns on one core
// CHECK-NEXT{LITERAL}:     lane: 64 rows, 8 per step, 2 programs, work 917504
// CHECK-NEXT{LITERAL}:       stage 0: exponential, reduce maximum
// CHECK-NEXT{LITERAL}:         // exponential: -:6
// CHECK-NEXT{LITERAL}:         // reduce: -:7
// CHECK-NEXT{LITERAL}:         for r in [0, 8):
// CHECK-NEXT{LITERAL}:           acc2 = float32(-inf)
// CHECK-NEXT{LITERAL}:           for i1 in [0, 512):
// CHECK-NEXT{LITERAL}:             v0 = a0[r * 512 + i1]
// CHECK-NEXT{LITERAL}:             v1 = exp(v0)
// CHECK-NEXT{LITERAL}:             t0[-q * 4096 + r * 512 + i1] = v1
// CHECK-NEXT{LITERAL}:             acc2 = max_reassoc(acc2, v1)
// CHECK-NEXT{LITERAL}:           t1[-q * 8 + r] = acc2
// CHECK-NEXT{LITERAL}:       stage 1: exponential, reduce maximum
// CHECK-NEXT{LITERAL}:         // broadcast_in_dim: -:9
// CHECK-NEXT{LITERAL}:         // divide: -:10
// CHECK-NEXT{LITERAL}:         // exponential: -:11
// CHECK-NEXT{LITERAL}:         // reduce: -:12
// CHECK-NEXT{LITERAL}:         for r in [0, 8):
// CHECK-NEXT{LITERAL}:           v4 = t1[-q * 8 + r]
// CHECK-NEXT{LITERAL}:           acc7 = float32(-inf)
// CHECK-NEXT{LITERAL}:           for i1 in [0, 512):
// CHECK-NEXT{LITERAL}:             v3 = t0[-q * 4096 + r * 512 + i1]
// CHECK-NEXT{LITERAL}:             v5 = divide_invariant(v3, v4)
// CHECK-NEXT{LITERAL}:             v6 = exp(v5)
// CHECK-NEXT{LITERAL}:             t2[-q * 4096 + r * 512 + i1] = v6
// CHECK-NEXT{LITERAL}:             acc7 = max_reassoc(acc7, v6)
// CHECK-NEXT{LITERAL}:           t3[-q * 8 + r] = acc7
// CHECK-NEXT{LITERAL}:       stage 2: exponential, reduce maximum
// CHECK-NEXT{LITERAL}:         // broadcast_in_dim: -:14
// CHECK-NEXT{LITERAL}:         // divide: -:15
// CHECK-NEXT{LITERAL}:         // exponential: -:16
// CHECK-NEXT{LITERAL}:         // reduce: -:17
// CHECK-NEXT{LITERAL}:         for r in [0, 8):
// CHECK-NEXT{LITERAL}:           v9 = t3[-q * 8 + r]
// CHECK-NEXT{LITERAL}:           acc12 = float32(-inf)
// CHECK-NEXT{LITERAL}:           for i1 in [0, 512):
// CHECK-NEXT{LITERAL}:             v8 = t2[-q * 4096 + r * 512 + i1]
// CHECK-NEXT{LITERAL}:             v10 = divide_invariant(v8, v9)
// CHECK-NEXT{LITERAL}:             v11 = exp(v10)
// CHECK-NEXT{LITERAL}:             t4[-q * 4096 + r * 512 + i1] = v11
// CHECK-NEXT{LITERAL}:             acc12 = max_reassoc(acc12, v11)
// CHECK-NEXT{LITERAL}:           t5[-q * 8 + r] = acc12
// CHECK-NEXT{LITERAL}:       stage 3: add
// CHECK-NEXT{LITERAL}:         // broadcast_in_dim: -:19
// CHECK-NEXT{LITERAL}:         // divide: -:20
// CHECK-NEXT{LITERAL}:         // add: -:21
// CHECK-NEXT{LITERAL}:         for r in [0, 8):
// CHECK-NEXT{LITERAL}:           v14 = t5[-q * 8 + r]
// CHECK-NEXT{LITERAL}:           for i1 in [0, 512):
// CHECK-NEXT{LITERAL}:             v13 = t4[-q * 4096 + r * 512 + i1]
// CHECK-NEXT{LITERAL}:             v15 = divide_invariant(v13, v14)
// CHECK-NEXT{LITERAL}:             v16 = a1[r * 512 + i1]
// CHECK-NEXT{LITERAL}:             v17 = v15 + v16
// CHECK-NEXT{LITERAL}:             o0[r * 512 + i1] = v17
