// As other producers write StableHLO: a named module without `main`, versions and partitions as attributes,
// private functions that call each other, composites, argument names, aliasing by number, fused locations.
module @IrToHlo.42 attributes {mhlo.cross_program_prefetches = [], mhlo.input_output_alias = [],
    mhlo.is_dynamic = false, mhlo.use_auto_spmd_partitioning = false, mhlo.num_partitions = 1 : i32,
    tf.versions = {bad_consumers = [], min_consumer = 0 : i32, producer = 1882 : i32}} {
  func.func private @aten.layer_norm.impl(%arg0: tensor<8x64xf32>, %arg1: tensor<64xf32>, %arg2: tensor<64xf32>)
      -> tensor<8x64xf32> {
    %0 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %1 = stablehlo.constant dense<6.400000e+01> : tensor<8xf32>
    %2 = stablehlo.constant dense<9.99999974E-6> : tensor<8x1xf32>
    %3 = stablehlo.reduce(%arg0 init: %0) applies stablehlo.add across dimensions = [1]
      : (tensor<8x64xf32>, tensor<f32>) -> tensor<8xf32>
    %4 = stablehlo.divide %3, %1 : tensor<8xf32>
    %5 = stablehlo.broadcast_in_dim %4, dims = [0] : (tensor<8xf32>) -> tensor<8x64xf32>
    %6 = stablehlo.subtract %arg0, %5 : tensor<8x64xf32>
    %7 = stablehlo.multiply %6, %6 : tensor<8x64xf32>
    %8 = "stablehlo.reduce"(%7, %0) <{dimensions = array<i64: 1>}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %s = stablehlo.add %a, %b : tensor<f32>
      "stablehlo.return"(%s) : (tensor<f32>) -> ()
    }) : (tensor<8x64xf32>, tensor<f32>) -> tensor<8xf32>
    %9 = stablehlo.divide %8, %1 : tensor<8xf32>
    %10 = stablehlo.reshape %9 : (tensor<8xf32>) -> tensor<8x1xf32>
    %11 = stablehlo.add %10, %2 : tensor<8x1xf32>
    %12 = stablehlo.rsqrt %11 : tensor<8x1xf32>
    %13 = stablehlo.broadcast_in_dim %12, dims = [0, 1] : (tensor<8x1xf32>) -> tensor<8x64xf32>
    %14 = stablehlo.multiply %6, %13 : tensor<8x64xf32>
    %15 = stablehlo.broadcast_in_dim %arg1, dims = [1] : (tensor<64xf32>) -> tensor<8x64xf32>
    %16 = stablehlo.multiply %14, %15 : tensor<8x64xf32>
    %17 = stablehlo.broadcast_in_dim %arg2, dims = [1] : (tensor<64xf32>) -> tensor<8x64xf32>
    %18 = stablehlo.add %16, %17 : tensor<8x64xf32>
    return %18 : tensor<8x64xf32>
  }
  func.func private @aten.gelu.impl(%arg0: tensor<8x128xf32>) -> tensor<8x128xf32> {
    %0 = stablehlo.constant dense<5.000000e-01> : tensor<8x128xf32>
    %1 = stablehlo.constant dense<0.797884583> : tensor<8x128xf32>
    %2 = stablehlo.multiply %arg0, %1 : tensor<8x128xf32>
    %3 = stablehlo.tanh %2 : tensor<8x128xf32>
    %4 = stablehlo.multiply %arg0, %0 : tensor<8x128xf32>
    %5 = stablehlo.multiply %4, %3 : tensor<8x128xf32>
    %6 = stablehlo.add %4, %5 : tensor<8x128xf32>
    return %6 : tensor<8x128xf32>
  }
  func.func private @block(%x: tensor<8x64xf32>, %g: tensor<64xf32>, %b: tensor<64xf32>, %u: tensor<64x128xf32>,
      %d: tensor<128x64xf32>) -> tensor<8x64xf32> attributes {tf.signature.is_stateful = true} {
    %n = func.call @aten.layer_norm.impl(%x, %g, %b)
      : (tensor<8x64xf32>, tensor<64xf32>, tensor<64xf32>) -> tensor<8x64xf32>
    %h = stablehlo.dot %n, %u
      : (tensor<8x64xf32>, tensor<64x128xf32>) -> tensor<8x128xf32>
    %a = stablehlo.composite "aten.gelu" %h {composite_attributes = {approximate = "none"},
      decomposition = @aten.gelu.impl} : (tensor<8x128xf32>) -> tensor<8x128xf32>
    %m = stablehlo.dot %a, %d : (tensor<8x128xf32>, tensor<128x64xf32>) -> tensor<8x64xf32>
    %y = stablehlo.add %x, %m {mhlo.frontend_attributes = {layer = "residual"}} : tensor<8x64xf32>
    return %y : tensor<8x64xf32>
  }
  func.func @serving_default(%arg0: tensor<8x64xf32> {tf.device = "", tf_saved_model.index_path = ["x"]} loc("x"),
      %arg1: tensor<64xf32> {mhlo.sharding = "{replicated}"}, %arg2: tensor<64xf32>, %arg3: tensor<64x128xf32>,
      %arg4: tensor<128x64xf32>, %arg5: tensor<8x64xf32> {tf.aliasing_output = 1 : i32})
      -> (tensor<8x64xf32> {jax.result_info = "", tf_saved_model.index_path = ["y"]}, tensor<8x64xf32>) {
    %0 = call @block(%arg0, %arg1, %arg2, %arg3, %arg4) : (tensor<8x64xf32>, tensor<64xf32>, tensor<64xf32>,
      tensor<64x128xf32>, tensor<128x64xf32>) -> tensor<8x64xf32>
    %1 = call @block(%0, %arg1, %arg2, %arg3, %arg4) : (tensor<8x64xf32>, tensor<64xf32>, tensor<64xf32>,
      tensor<64x128xf32>, tensor<128x64xf32>) -> tensor<8x64xf32>
    %2 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %3 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %4 = stablehlo.reduce(%1 init: %2) applies stablehlo.maximum across dimensions = [1]
      : (tensor<8x64xf32>, tensor<f32>) -> tensor<8xf32> loc(fused<"softmax">["max", "torch/nn/functional.py":2103:11])
    %5 = stablehlo.broadcast_in_dim %4, dims = [0] : (tensor<8xf32>) -> tensor<8x64xf32>
    %6 = stablehlo.subtract %1, %5 : tensor<8x64xf32>
    %7 = stablehlo.exponential %6 : tensor<8x64xf32> loc("torch/nn/functional.py":2104:11)
    %8 = stablehlo.reduce(%7 init: %3) applies stablehlo.add across dimensions = [1]
      : (tensor<8x64xf32>, tensor<f32>) -> tensor<8xf32>
    %9 = stablehlo.broadcast_in_dim %8, dims = [0] : (tensor<8xf32>) -> tensor<8x64xf32>
    %10 = stablehlo.divide %7, %9 : tensor<8x64xf32>
    %11 = stablehlo.multiply %arg5, %10 : tensor<8x64xf32>
    return %10, %11 : tensor<8x64xf32>, tensor<8x64xf32>
  }
}
