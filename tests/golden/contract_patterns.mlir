// RUN: jstitch opt %s --emit stitched --tune off | filecheck %s
// A pattern's ops become one custom call; the product stays XLA's.

func.func @main(%x: tensor<8x16xf32>, %w: tensor<16x16xf32>) -> tensor<8x16xf32> {
  %a = stablehlo.tanh %x : tensor<8x16xf32>
  %b = stablehlo.negate %a : tensor<8x16xf32>
  %p = stablehlo.dot_general %b, %w, contracting_dims = [1] x [0]
    : (tensor<8x16xf32>, tensor<16x16xf32>) -> tensor<8x16xf32>
  return %p : tensor<8x16xf32>
}

// CHECK{LITERAL}: module {
// CHECK-NEXT{LITERAL}:   func.func public @main(%arg0: tensor<8x16xf32>, %arg1: tensor<16x16xf32>) -> tensor<8x16xf32> {
// CHECK-NEXT:     %0 = stablehlo.custom_call @jstitch(%arg0) {api_version = 4 : i32, backend_config = {h = "{{[0-9a-f]+}}", src = "{\22arena_bytes\22:0,\22name\22:\22kernel_elementwise_0\22,\22num_args\22:1,\22num_results\22:1,\22phases\22:[{\22alone_ns\22:18,\22function\22:\22phase0\22,\22programs\22:1}],\22scratch_bytes\22:0,\22text\22:\22from jstitch.codegen.cpu.math import load_f32, load_s64, store_f32, tanh\\ndef phase0(bufs, arena, program):\\n    p = program\\n    b0 = load_s64(bufs, 0, 0)\\n    b1 = load_s64(bufs, 1, 0)\\n    lo = p * 128\\n    hi = p * 128 + 128\\n    for r in range(lo, hi):\\n        v0 = load_f32(b0, r, 1)\\n        v1 = tanh(v0)\\n        v2 = -v1\\n        store_f32(b1, r, v2, 2)\\n\22}"}, mhlo.frontend_attributes = {jstitch.bytes = "1024", jstitch.flops = "1408", jstitch.kernel = "kernel_elementwise_0", jstitch.launches = "1", jstitch.ops = "stablehlo.tanh, stablehlo.negate"}, operand_layouts = [dense<[1, 0]> : tensor<2xindex>], result_layouts = [dense<[1, 0]> : tensor<2xindex>]} : (tensor<8x16xf32>) -> tensor<8x16xf32>
// CHECK-NEXT{LITERAL}:     %1 = stablehlo.dot_general %0, %arg1, contracting_dims = [1] x [0] : (tensor<8x16xf32>, tensor<16x16xf32>) -> tensor<8x16xf32>
// CHECK-NEXT{LITERAL}:     return %1 : tensor<8x16xf32>
// CHECK-NEXT{LITERAL}:   }
// CHECK-NEXT{LITERAL}: }
