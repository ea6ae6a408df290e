// RUN: jstitch opt %s --emit kernels --tune off | filecheck %s
// A step scaled by a power of its rows' sums and by its norm: what is kept is the rows' powers, not the step.

func.func @main(%g: tensor<96x64xf32>, %p: tensor<96x64xf32>) -> tensor<96x64xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %w = stablehlo.constant dense<-0.37> : tensor<96xf32>
  %q = stablehlo.multiply %g, %g : tensor<96x64xf32>
  %s = stablehlo.reduce(%q init: %zero) applies stablehlo.add across dimensions = [1]
    : (tensor<96x64xf32>, tensor<f32>) -> tensor<96xf32>
  %r = stablehlo.power %s, %w : tensor<96xf32>
  %rb = stablehlo.broadcast_in_dim %r, dims = [0] : (tensor<96xf32>) -> tensor<96x64xf32>
  %u = stablehlo.multiply %g, %rb : tensor<96x64xf32>
  %v = stablehlo.multiply %u, %u : tensor<96x64xf32>
  %t = stablehlo.reduce(%v init: %zero) applies stablehlo.add across dimensions = [0, 1]
    : (tensor<96x64xf32>, tensor<f32>) -> tensor<f32>
  %n = stablehlo.rsqrt %t : tensor<f32>
  %nb = stablehlo.broadcast_in_dim %n, dims = [] : (tensor<f32>) -> tensor<96x64xf32>
  %x = stablehlo.multiply %u, %nb : tensor<96x64xf32>
  %y = stablehlo.subtract %p, %x : tensor<96x64xf32>
  return %y : tensor<96x64xf32>
}

// CHECK{LITERAL}: kernel kernel_row_total_0
// CHECK-NEXT{LITERAL}:   argument a0: tensor<96x64xf32>
// CHECK-NEXT{LITERAL}:   argument a1: tensor<96x64xf32>
// CHECK-NEXT{LITERAL}:   result o0: tensor<96x64xf32>
// CHECK-NEXT{LITERAL}:   scratch s0: tensor<96xf32>
// CHECK-NEXT{LITERAL}:   scratch s1: tensor<1xf32>
// CHECK-NEXT{LITERAL}:   scratch s2: tensor<f32>
// CHECK-NEXT{LITERAL}:   reduce_0[GRID_1, THREAD]S;
// CHECK-NEXT{LITERAL}:   power_0[GRID_1];
// CHECK-NEXT{LITERAL}:   reduce_1.partial[GRID_1, THREAD];
// CHECK-NEXT{LITERAL}:   reduce_1[THREAD]S;
// CHECK-NEXT{LITERAL}:   rsqrt_0[THREAD];
// CHECK-NEXT{LITERAL}:   subtract_0[GRID_1, THREAD];
// CHECK-NEXT{LITERAL}:   arena: 64 bytes per program, scratch: 512 bytes
// CHECK-NEXT{LITERAL}:   arena t0: tensor<1x1xf32> bytes [0, 4)
// CHECK-NEXT{LITERAL}:   arena t0: tensor<1x1xf32> bytes [0, 4)
// CHECK-NEXT{LITERAL}:   phase 0: 1,517 ns on one core
// CHECK-NEXT{LITERAL}:     lane: 96 rows, 1 per step, 1 programs, work 14208
// CHECK-NEXT{LITERAL}:       stage 0 (once): start the partial sums
// CHECK-NEXT{LITERAL}:         for i in [0, 1):
// CHECK-NEXT{LITERAL}:           s1[0] = float32(0.0)
// CHECK-NEXT{LITERAL}:       stage 1: reduce add
// CHECK-NEXT{LITERAL}:         // multiply: -:7
// CHECK-NEXT{LITERAL}:         // reduce: -:8
// CHECK-NEXT{LITERAL}:         for r in [0, 1):
// CHECK-NEXT{LITERAL}:           acc2 = float32(0.0)
// CHECK-NEXT{LITERAL}:           for i1 in [0, 64):
// CHECK-NEXT{LITERAL}:             v0 = a0[r * 64 + i1]
// CHECK-NEXT{LITERAL}:             v1 = v0 * v0
// CHECK-NEXT{LITERAL}:             acc2 = add_reassoc(acc2, v1)
// CHECK-NEXT{LITERAL}:           t0[0] = acc2
// CHECK-NEXT{LITERAL}:       stage 2: power, partial_reduce add
// CHECK-NEXT{LITERAL}:         // power: -:10
// CHECK-NEXT{LITERAL}:         // broadcast_in_dim: -:11
// CHECK-NEXT{LITERAL}:         // multiply: -:12
// CHECK-NEXT{LITERAL}:         // multiply: -:13
// CHECK-NEXT{LITERAL}:         // partial_reduce: -:14
// CHECK-NEXT{LITERAL}:         v3 = t0[0]
// CHECK-NEXT{LITERAL}:         v4 = pow_(v3, float32(-0.3700000047683716))
// CHECK-NEXT{LITERAL}:         for r in [0, 1):
// CHECK-NEXT{LITERAL}:           s0[r] = v4
// CHECK-NEXT{LITERAL}:         v6 = t0[0]
// CHECK-NEXT{LITERAL}:         v7 = pow_(v6, float32(-0.3700000047683716))
// CHECK-NEXT{LITERAL}:         for r in [0, 1):
// CHECK-NEXT{LITERAL}:           v11 = s1[0]
// CHECK-NEXT{LITERAL}:           acc10 = v11
// CHECK-NEXT{LITERAL}:           for i1 in [0, 64):
// CHECK-NEXT{LITERAL}:             v5 = a0[r * 64 + i1]
// CHECK-NEXT{LITERAL}:             v8 = v5 * v7
// CHECK-NEXT{LITERAL}:             v9 = v8 * v8
// CHECK-NEXT{LITERAL}:             acc10 = add_reassoc(acc10, v9)
// CHECK-NEXT{LITERAL}:           s1[0] = acc10
// CHECK-NEXT{LITERAL}:   phase 1: 1 ns on one core
// CHECK-NEXT{LITERAL}:     lane: 1 rows, 1 per step, 1 programs, work 5
// CHECK-NEXT{LITERAL}:       stage 0: reduce add
// CHECK-NEXT{LITERAL}:         // reduce: -:14
// CHECK-NEXT{LITERAL}:         v0 = s1[0]
// CHECK-NEXT{LITERAL}:         v1 = add_reassoc(float32(0.0), v0)
// CHECK-NEXT{LITERAL}:         t0[0] = v1
// CHECK-NEXT{LITERAL}:       stage 1: rsqrt
// CHECK-NEXT{LITERAL}:         // rsqrt: -:16
// CHECK-NEXT{LITERAL}:         v2 = t0[0]
// CHECK-NEXT{LITERAL}:         v3 = rsqrt(v2)
// CHECK-NEXT{LITERAL}:         s2[0] = v3
// CHECK-NEXT{LITERAL}:   phase 2: 1,005 ns on one core
// CHECK-NEXT{LITERAL}:     lane: 96 rows, 1 per step, 1 programs, work 6144
// CHECK-NEXT{LITERAL}:       stage 0: subtract
// CHECK-NEXT{LITERAL}:         // broadcast_in_dim: -:11
// CHECK-NEXT{LITERAL}:         // multiply: -:12
// CHECK-NEXT{LITERAL}:         // broadcast_in_dim: -:17
// CHECK-NEXT{LITERAL}:         // multiply: -:18
// CHECK-NEXT{LITERAL}:         // subtract: -:19
// CHECK-NEXT{LITERAL}:         v4 = s2[0]
// CHECK-NEXT{LITERAL}:         for r in [0, 1):
// CHECK-NEXT{LITERAL}:           v2 = s0[r]
// CHECK-NEXT{LITERAL}:           for i1 in [0, 64):
// CHECK-NEXT{LITERAL}:             v0 = a1[r * 64 + i1]
// CHECK-NEXT{LITERAL}:             v1 = a0[r * 64 + i1]
// CHECK-NEXT{LITERAL}:             v3 = v1 * v2
// CHECK-NEXT{LITERAL}:             v5 = v3 * v4
// CHECK-NEXT{LITERAL}:             v6 = v0 - v5
// CHECK-NEXT{LITERAL}:             o0[r * 64 + i1] = v6
