// RUN: jstitch opt %s --emit stitched --tune off | filecheck %s
// A donated argument is overwritten in place.

func.func @main(%p: tensor<64xf32> {tf.aliasing_output = 0 : i32}, %g: tensor<64xf32>, %q: tensor<32x8xf32>, %h: tensor<32x8xf32>)
    -> (tensor<64xf32>, tensor<32x8xf32>) {
  %rate = stablehlo.constant dense<1.0e-3> : tensor<64xf32>
  %step = stablehlo.multiply %g, %rate : tensor<64xf32>
  %a = stablehlo.subtract %p, %step : tensor<64xf32>
  %rate2 = stablehlo.constant dense<1.0e-3> : tensor<32x8xf32>
  %step2 = stablehlo.multiply %h, %rate2 : tensor<32x8xf32>
  %b = stablehlo.subtract %q, %step2 : tensor<32x8xf32>
  return %a, %b : tensor<64xf32>, tensor<32x8xf32>
}

// CHECK{LITERAL}: module {
// CHECK-NEXT{LITERAL}:   func.func public @main(%arg0: tensor<64xf32>, %arg1: tensor<64xf32>, %arg2: tensor<32x8xf32>, %arg3: tensor<32x8xf32>) -> (tensor<64xf32>, tensor<32x8xf32>) {
// CHECK-NEXT{LITERAL}:     %cst = stablehlo.constant dense<1.000000e-03> : tensor<64xf32>
// CHECK-NEXT{LITERAL}:     %cst_0 = stablehlo.constant dense<1.000000e-03> : tensor<32x8xf32>
// CHECK-NEXT:     %0:2 = stablehlo.custom_call @jstitch(%arg0, %arg1, %arg2, %arg3) {api_version = 4 : i32, backend_config = {h = "{{[0-9a-f]+}}", src = "{\22arena_bytes\22:0,\22name\22:\22kernel_elementwise_0\22,\22num_args\22:4,\22num_results\22:2,\22phases\22:[{\22alone_ns\22:52,\22function\22:\22phase0\22,\22programs\22:2}],\22scratch_bytes\22:0,\22text\22:\22from numba import float32\\nfrom jstitch.codegen.cpu.math import load_f32, load_s64, store_f32\\ndef phase0(bufs, arena, program):\\n    if program < 1:\\n        p = program\\n        b0 = load_s64(bufs, 0, 0)\\n        b1 = load_s64(bufs, 1, 0)\\n        b2 = load_s64(bufs, 4, 0)\\n        lo = p * 64\\n        hi = p * 64 + 64\\n        for r in range(lo, hi):\\n            v0 = load_f32(b2, r, 3)\\n            v1 = load_f32(b1, r, 2)\\n            v2 = v1 * float32(0.0010000000474974513)\\n            v3 = v0 - v2\\n            store_f32(b2, r, v3, 3)\\n    else:\\n        p = program - 1\\n        b1_0 = load_s64(bufs, 2, 0)\\n        b1_1 = load_s64(bufs, 3, 0)\\n        b1_2 = load_s64(bufs, 5, 0)\\n        lo = p * 256\\n        hi = p * 256 + 256\\n        for r in range(lo, hi):\\n            v1_0 = load_f32(b1_0, r, 1)\\n            v1_1 = load_f32(b1_1, r, 2)\\n            v1_2 = v1_1 * float32(0.0010000000474974513)\\n            v1_3 = v1_0 - v1_2\\n            store_f32(b1_2, r, v1_3, 3)\\n\22}"}, mhlo.frontend_attributes = {jstitch.bytes = "3840", jstitch.flops = "640", jstitch.kernel = "kernel_elementwise_0", jstitch.launches = "1", jstitch.ops = "stablehlo.constant, stablehlo.multiply, stablehlo.subtract"}, operand_layouts = [dense<0> : tensor<1xindex>, dense<0> : tensor<1xindex>, dense<[1, 0]> : tensor<2xindex>, dense<[1, 0]> : tensor<2xindex>], output_operand_aliases = [#stablehlo.output_operand_alias<output_tuple_indices = [0], operand_index = 0, operand_tuple_indices = []>], result_layouts = [dense<0> : tensor<1xindex>, dense<[1, 0]> : tensor<2xindex>]} : (tensor<64xf32>, tensor<64xf32>, tensor<32x8xf32>, tensor<32x8xf32>) -> (tensor<64xf32>, tensor<32x8xf32>)
// CHECK-NEXT{LITERAL}:     return %0#0, %0#1 : tensor<64xf32>, tensor<32x8xf32>
// CHECK-NEXT{LITERAL}:   }
// CHECK-NEXT{LITERAL}: }
