// RUN: jstitch opt %s --passes plan_layers,gate | filecheck %s
// A chain that XLA fuses as well is not worth a call of ours; the numbers are the reason.

func.func @main(%x: tensor<64xf32>) -> tensor<64xf32> {
  %a = stablehlo.negate %x : tensor<64xf32>
  %b = stablehlo.abs %a : tensor<64xf32>
  return %b : tensor<64xf32>
}

// CHECK{LITERAL}: frame 0
// CHECK-NEXT{LITERAL}: not fused
// CHECK-NEXT{LITERAL}:   %0 stablehlo.negate -> %1 stablehlo.abs    gate: modelled 0.40 us (0.00 MB), and must be less than 0.38 us, 0.95 of XLA's 0.41 us (0.00 MB, 1 kernel)
