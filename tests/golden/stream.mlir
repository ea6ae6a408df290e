// RUN: jstitch opt %s --emit source --tune off | filecheck %s
// A kernel much larger than the cache writes its result past the caches.

func.func @main(%x: tensor<65536x1024xf32>, %y: tensor<65536x1024xf32>) -> tensor<65536x1024xf32> {
  %t = stablehlo.tanh %x : tensor<65536x1024xf32>
  %z = stablehlo.add %t, %y : tensor<65536x1024xf32>
  return %z : tensor<65536x1024xf32>
}

// CHECK{LITERAL}: from jstitch.codegen.cpu.math import clamp_index, end_streams, load_f32, load_s64, quotient, store_f32, stream, tanh
// CHECK-EMPTY:
// CHECK-EMPTY:
// CHECK-NEXT{LITERAL}: def phase0(bufs, arena, program):
// CHECK-NEXT{LITERAL}:     # 67108864 rows, 64 programs
// CHECK-NEXT{LITERAL}:     p = program
// CHECK-NEXT{LITERAL}:     b0 = load_s64(bufs, 0, 0)  # tensor<65536x1024xf32>
// CHECK-NEXT{LITERAL}:     b1 = load_s64(bufs, 1, 0)  # tensor<65536x1024xf32>
// CHECK-NEXT{LITERAL}:     b2 = load_s64(bufs, 2, 0)  # tensor<65536x1024xf32>
// CHECK-NEXT{LITERAL}:     b3 = arena + 0  # tensor<512xf32>
// CHECK-NEXT{LITERAL}:     lo = clamp_index(p * 1048576, 0, 67108864)
// CHECK-NEXT{LITERAL}:     hi = clamp_index(p * 1048576 + 1048576, 0, 67108864)
// CHECK-NEXT{LITERAL}:     # add
// CHECK-NEXT{LITERAL}:     #   tanh: -:5
// CHECK-NEXT{LITERAL}:     #   add: -:6
// CHECK-NEXT{LITERAL}:     for w in range(0, quotient(clamp_index(hi - lo, 0, 1048576) + 511, 512)):
// CHECK-NEXT{LITERAL}:         start = lo + w * 512
// CHECK-NEXT{LITERAL}:         end = clamp_index(start + 512, 0, hi)
// CHECK-NEXT{LITERAL}:         for r in range(start, end):
// CHECK-NEXT{LITERAL}:             v0 = load_f32(b0, r, 1)
// CHECK-NEXT{LITERAL}:             v1 = tanh(v0)
// CHECK-NEXT{LITERAL}:             v2 = load_f32(b1, r, 2)
// CHECK-NEXT{LITERAL}:             v3 = v1 + v2
// CHECK-NEXT{LITERAL}:             store_f32(b3, r - start, v3, 4)
// CHECK-NEXT{LITERAL}:         stream(b2, start * 4, b3, (end - start) * 4)
// CHECK-NEXT{LITERAL}:     end_streams()
