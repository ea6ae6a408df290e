// RUN: jstitch opt %s --passes clone_broadcasts,one_pass_sums --target h200 | filecheck %s
// On a GPU: the mean and the variance of columns in one reading, and one pass over the rows.

func.func @main(%x: tensor<4096x64xf32>) -> tensor<64xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %n = stablehlo.constant dense<4096.0> : tensor<64xf32>
  %s = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [0]
    : (tensor<4096x64xf32>, tensor<f32>) -> tensor<64xf32>
  %mean = stablehlo.divide %s, %n : tensor<64xf32>
  %mb = stablehlo.broadcast_in_dim %mean, dims = [1] : (tensor<64xf32>) -> tensor<4096x64xf32>
  %d = stablehlo.subtract %x, %mb : tensor<4096x64xf32>
  %q = stablehlo.multiply %d, %d : tensor<4096x64xf32>
  %v = stablehlo.reduce(%q init: %zero) applies stablehlo.add across dimensions = [0]
    : (tensor<4096x64xf32>, tensor<f32>) -> tensor<64xf32>
  %variance = stablehlo.divide %v, %n : tensor<64xf32>
  return %variance : tensor<64xf32>
}

// CHECK{LITERAL}: graph(%arg0: tensor<4096x64xf32>) -> (%72) {
// CHECK-NEXT{LITERAL}:   %0 = stablehlo.constant {value = dense<1.0>} : tensor<4096x64xf32>
// CHECK-NEXT{LITERAL}:   %1 = stablehlo.constant {value = dense<0.0>} : tensor<4096x64xf32>
// CHECK-NEXT{LITERAL}:   %2 = stablehlo.constant {value = dense<0.0>} : tensor<f32>
// CHECK-NEXT{LITERAL}:   %3 = stablehlo.constant {value = dense<0.0>} : tensor<f32>
// CHECK-NEXT{LITERAL}:   %4 = stablehlo.constant {value = dense<0.0>} : tensor<f32>
// CHECK-NEXT{LITERAL}:   %5 = stablehlo.constant {value = dense<0.0>} : tensor<f32>
// CHECK-NEXT{LITERAL}:   %6, %7, %8, %9 = stablehlo.reduce %0, %arg0, %1, %1, %2, %3, %4, %5 {dimensions = (0,), identity = (0.0, 0.0, 0.0, 0.0), uniform = (0,)} : tensor<64xf32>, tensor<64xf32>, tensor<64xf32>, tensor<64xf32>  // -:7
// CHECK-NEXT{LITERAL}:     region 0(%arg1: tensor<f32>, %arg2: tensor<f32>, %arg3: tensor<f32>, %arg4: tensor<f32>, %arg5: tensor<f32>, %arg6: tensor<f32>, %arg7: tensor<f32>, %arg8: tensor<f32>) -> (%39, %40, %44, %49) {
// CHECK-NEXT{LITERAL}:       %10 = stablehlo.divide %arg7, %arg5 : tensor<f32>
// CHECK-NEXT{LITERAL}:       %11 = stablehlo.constant {value = dense<1.0>} : tensor<f32>
// CHECK-NEXT{LITERAL}:       %12 = stablehlo.compare %arg5, %11 {comparison_direction = GT} : tensor<i1>
// CHECK-NEXT{LITERAL}:       %13 = stablehlo.abs %10 : tensor<f32>
// CHECK-NEXT{LITERAL}:       %14 = stablehlo.constant {value = dense<inf>} : tensor<f32>
// CHECK-NEXT{LITERAL}:       %15 = stablehlo.compare %13, %14 {comparison_direction = LT} : tensor<i1>
// CHECK-NEXT{LITERAL}:       %16 = stablehlo.and %12, %15 : tensor<i1>
// CHECK-NEXT{LITERAL}:       %17 = stablehlo.add %arg6, %10 : tensor<f32>
// CHECK-NEXT{LITERAL}:       %18 = stablehlo.subtract %17, %arg6 : tensor<f32>
// CHECK-NEXT{LITERAL}:       %19 = stablehlo.multiply %arg5, %18 : tensor<f32>
// CHECK-NEXT{LITERAL}:       %20 = stablehlo.add %arg7, %arg7 : tensor<f32>
// CHECK-NEXT{LITERAL}:       %21 = stablehlo.subtract %20, %19 : tensor<f32>
// CHECK-NEXT{LITERAL}:       %22 = stablehlo.multiply %18, %21 : tensor<f32>
// CHECK-NEXT{LITERAL}:       %23 = stablehlo.select %16, %17, %arg6 : tensor<f32>
// CHECK-NEXT{LITERAL}:       %24 = stablehlo.subtract %arg7, %19 : tensor<f32>
// CHECK-NEXT{LITERAL}:       %25 = stablehlo.select %16, %24, %arg7 : tensor<f32>
// CHECK-NEXT{LITERAL}:       %26 = stablehlo.abs %arg8 : tensor<f32>
// CHECK-NEXT{LITERAL}:       %27 = stablehlo.constant {value = dense<inf>} : tensor<f32>
// CHECK-NEXT{LITERAL}:       %28 = stablehlo.compare %26, %27 {comparison_direction = LT} : tensor<i1>
// CHECK-NEXT{LITERAL}:       %29 = stablehlo.and %16, %28 : tensor<i1>
// CHECK-NEXT{LITERAL}:       %30 = stablehlo.subtract %arg8, %22 : tensor<f32>
// CHECK-NEXT{LITERAL}:       %31 = stablehlo.select %29, %30, %arg8 : tensor<f32>
// CHECK-NEXT{LITERAL}:       %32 = stablehlo.constant {value = dense<0.0>} : tensor<f32>
// CHECK-NEXT{LITERAL}:       %33 = stablehlo.compare %arg1, %32 {comparison_direction = GT} : tensor<i1>
// CHECK-NEXT{LITERAL}:       %34 = stablehlo.abs %23 : tensor<f32>
// CHECK-NEXT{LITERAL}:       %35 = stablehlo.constant {value = dense<inf>} : tensor<f32>
// CHECK-NEXT{LITERAL}:       %36 = stablehlo.compare %34, %35 {comparison_direction = LT} : tensor<i1>
// CHECK-NEXT{LITERAL}:       %37 = stablehlo.constant {value = dense<0.0>} : tensor<f32>
// CHECK-NEXT{LITERAL}:       %38 = stablehlo.select %36, %23, %37 : tensor<f32>
// CHECK-NEXT{LITERAL}:       %39 = stablehlo.add %arg1, %arg5 : tensor<f32>
// CHECK-NEXT{LITERAL}:       %40 = stablehlo.select %33, %arg2, %38 : tensor<f32>
// CHECK-NEXT{LITERAL}:       %41 = stablehlo.subtract %23, %40 : tensor<f32>
// CHECK-NEXT{LITERAL}:       %42 = stablehlo.multiply %arg5, %41 : tensor<f32>
// CHECK-NEXT{LITERAL}:       %43 = stablehlo.add %25, %42 : tensor<f32>
// CHECK-NEXT{LITERAL}:       %44 = stablehlo.add %arg3, %43 : tensor<f32>
// CHECK-NEXT{LITERAL}:       %45 = stablehlo.add %25, %25 : tensor<f32>
// CHECK-NEXT{LITERAL}:       %46 = stablehlo.add %45, %42 : tensor<f32>
// CHECK-NEXT{LITERAL}:       %47 = stablehlo.multiply %41, %46 : tensor<f32>
// CHECK-NEXT{LITERAL}:       %48 = stablehlo.add %31, %47 : tensor<f32>
// CHECK-NEXT{LITERAL}:       %49 = stablehlo.add %arg4, %48 : tensor<f32>
// CHECK-NEXT{LITERAL}:     }
// CHECK-NEXT{LITERAL}:   %50 = stablehlo.abs %9 : tensor<64xf32>
// CHECK-NEXT{LITERAL}:   %51 = stablehlo.constant {value = dense<inf>} : tensor<64xf32>
// CHECK-NEXT{LITERAL}:   %52 = stablehlo.compare %50, %51 {comparison_direction = LT} : tensor<64xi1>
// CHECK-NEXT{LITERAL}:   %53 = stablehlo.constant {value = dense<4096.0>} : tensor<64xf32>
// CHECK-NEXT{LITERAL}:   %54 = stablehlo.multiply %53, %7 : tensor<64xf32>
// CHECK-NEXT{LITERAL}:   %55 = stablehlo.add %54, %8 : tensor<64xf32>  // -:7
// CHECK-NEXT{LITERAL}:   %56 = stablehlo.constant {value = dense<4096.0>} : tensor<64xf32>  // -:6
// CHECK-NEXT{LITERAL}:   %57 = stablehlo.divide %55, %56 : tensor<64xf32>  // -:9
// CHECK-NEXT{LITERAL}:   %58 = stablehlo.subtract %7, %57 : tensor<64xf32>
// CHECK-NEXT{LITERAL}:   %59 = stablehlo.subtract %8, %8 : tensor<64xf32>
// CHECK-NEXT{LITERAL}:   %60 = stablehlo.add %58, %59 : tensor<64xf32>
// CHECK-NEXT{LITERAL}:   %61 = stablehlo.subtract %7, %57 : tensor<64xf32>
// CHECK-NEXT{LITERAL}:   %62 = stablehlo.subtract %8, %8 : tensor<64xf32>
// CHECK-NEXT{LITERAL}:   %63 = stablehlo.add %61, %62 : tensor<64xf32>
// CHECK-NEXT{LITERAL}:   %64 = stablehlo.multiply %53, %63 : tensor<64xf32>
// CHECK-NEXT{LITERAL}:   %65 = stablehlo.add %8, %64 : tensor<64xf32>
// CHECK-NEXT{LITERAL}:   %66 = stablehlo.multiply %60, %65 : tensor<64xf32>
// CHECK-NEXT{LITERAL}:   %67 = stablehlo.add %9, %66 : tensor<64xf32>
// CHECK-NEXT{LITERAL}:   %68 = stablehlo.multiply %8, %63 : tensor<64xf32>
// CHECK-NEXT{LITERAL}:   %69 = stablehlo.add %67, %68 : tensor<64xf32>
// CHECK-NEXT{LITERAL}:   %70 = stablehlo.add %9, %60 : tensor<64xf32>
// CHECK-NEXT{LITERAL}:   %71 = stablehlo.select %52, %69, %70 : tensor<64xf32>  // -:13
// CHECK-NEXT{LITERAL}:   %72 = stablehlo.divide %71, %56 : tensor<64xf32>  // -:15
// CHECK-NEXT{LITERAL}: }
