// RUN: jstitch opt %s --passes write_top_k --target cpu | filecheck %s
// The two largest of each row, and where they are.

func.func @main(%x: tensor<8x64xf32>) -> (tensor<8x2xf32>, tensor<8x2xi32>) {
  %values, %places = chlo.top_k(%x, k = 2) : tensor<8x64xf32> -> (tensor<8x2xf32>, tensor<8x2xi32>)
  func.return %values, %places : tensor<8x2xf32>, tensor<8x2xi32>
}

// CHECK{LITERAL}: graph(%arg0: tensor<8x64xf32>) -> (%54, %57) {
// CHECK-NEXT{LITERAL}:   %0 = stablehlo.bitcast_convert %arg0 : tensor<8x64xi32>  // -:5
// CHECK-NEXT{LITERAL}:   %1 = stablehlo.constant {value = dense<0>} : tensor<8x64xi32>  // -:5
// CHECK-NEXT{LITERAL}:   %2 = stablehlo.compare %0, %1 {comparison_direction = LT} : tensor<8x64xi1>  // -:5
// CHECK-NEXT{LITERAL}:   %3 = stablehlo.constant {value = dense<2147483647>} : tensor<8x64xi32>  // -:5
// CHECK-NEXT{LITERAL}:   %4 = stablehlo.xor %0, %3 : tensor<8x64xi32>  // -:5
// CHECK-NEXT{LITERAL}:   %5 = stablehlo.select %2, %4, %0 : tensor<8x64xi32>  // -:5
// CHECK-NEXT{LITERAL}:   %6 = stablehlo.iota {iota_dimension = 1} : tensor<8x64xi32>  // -:5
// CHECK-NEXT{LITERAL}:   %7 = stablehlo.constant {value = dense<-2147483648>} : tensor<i32>  // -:5
// CHECK-NEXT{LITERAL}:   %8 = stablehlo.reduce %5, %7 {dimensions = (1,), monoid = stablehlo.maximum} : tensor<8xi32>  // -:5
// CHECK-NEXT{LITERAL}:     region 0(%arg1: tensor<i32>, %arg2: tensor<i32>) -> (%9) {
// CHECK-NEXT{LITERAL}:       %9 = stablehlo.maximum %arg1, %arg2 : tensor<i32>  // -:5
// CHECK-NEXT{LITERAL}:     }
// CHECK-NEXT{LITERAL}:   %10 = stablehlo.broadcast_in_dim %8 {broadcast_dimensions = (0,)} : tensor<8x64xi32>  // -:5
// CHECK-NEXT{LITERAL}:   %11 = stablehlo.compare %5, %10 {comparison_direction = EQ} : tensor<8x64xi1>  // -:5
// CHECK-NEXT{LITERAL}:   %12 = stablehlo.constant {value = dense<64>} : tensor<8x64xi32>  // -:5
// CHECK-NEXT{LITERAL}:   %13 = stablehlo.select %11, %6, %12 : tensor<8x64xi32>  // -:5
// CHECK-NEXT{LITERAL}:   %14 = stablehlo.constant {value = dense<2147483647>} : tensor<i32>  // -:5
// CHECK-NEXT{LITERAL}:   %15 = stablehlo.reduce %13, %14 {dimensions = (1,), monoid = stablehlo.minimum} : tensor<8xi32>  // -:5
// CHECK-NEXT{LITERAL}:     region 0(%arg3: tensor<i32>, %arg4: tensor<i32>) -> (%16) {
// CHECK-NEXT{LITERAL}:       %16 = stablehlo.minimum %arg3, %arg4 : tensor<i32>  // -:5
// CHECK-NEXT{LITERAL}:     }
// CHECK-NEXT{LITERAL}:   %17 = stablehlo.broadcast_in_dim %8 {broadcast_dimensions = (0,)} : tensor<8x64xi32>  // -:5
// CHECK-NEXT{LITERAL}:   %18 = stablehlo.compare %5, %17 {comparison_direction = LT} : tensor<8x64xi1>  // -:5
// CHECK-NEXT{LITERAL}:   %19 = stablehlo.broadcast_in_dim %8 {broadcast_dimensions = (0,)} : tensor<8x64xi32>  // -:5
// CHECK-NEXT{LITERAL}:   %20 = stablehlo.compare %5, %19 {comparison_direction = EQ} : tensor<8x64xi1>  // -:5
// CHECK-NEXT{LITERAL}:   %21 = stablehlo.broadcast_in_dim %15 {broadcast_dimensions = (0,)} : tensor<8x64xi32>  // -:5
// CHECK-NEXT{LITERAL}:   %22 = stablehlo.compare %6, %21 {comparison_direction = GT} : tensor<8x64xi1>  // -:5
// CHECK-NEXT{LITERAL}:   %23 = stablehlo.and %20, %22 : tensor<8x64xi1>  // -:5
// CHECK-NEXT{LITERAL}:   %24 = stablehlo.or %18, %23 : tensor<8x64xi1>  // -:5
// CHECK-NEXT{LITERAL}:   %25 = stablehlo.constant {value = dense<-2147483648>} : tensor<8x64xi32>  // -:5
// CHECK-NEXT{LITERAL}:   %26 = stablehlo.select %24, %5, %25 : tensor<8x64xi32>  // -:5
// CHECK-NEXT{LITERAL}:   %27 = stablehlo.constant {value = dense<-2147483648>} : tensor<i32>  // -:5
// CHECK-NEXT{LITERAL}:   %28 = stablehlo.reduce %26, %27 {dimensions = (1,), monoid = stablehlo.maximum} : tensor<8xi32>  // -:5
// CHECK-NEXT{LITERAL}:     region 0(%arg5: tensor<i32>, %arg6: tensor<i32>) -> (%29) {
// CHECK-NEXT{LITERAL}:       %29 = stablehlo.maximum %arg5, %arg6 : tensor<i32>  // -:5
// CHECK-NEXT{LITERAL}:     }
// CHECK-NEXT{LITERAL}:   %30 = stablehlo.broadcast_in_dim %28 {broadcast_dimensions = (0,)} : tensor<8x64xi32>  // -:5
// CHECK-NEXT{LITERAL}:   %31 = stablehlo.compare %5, %30 {comparison_direction = EQ} : tensor<8x64xi1>  // -:5
// CHECK-NEXT{LITERAL}:   %32 = stablehlo.and %31, %24 : tensor<8x64xi1>  // -:5
// CHECK-NEXT{LITERAL}:   %33 = stablehlo.constant {value = dense<64>} : tensor<8x64xi32>  // -:5
// CHECK-NEXT{LITERAL}:   %34 = stablehlo.select %32, %6, %33 : tensor<8x64xi32>  // -:5
// CHECK-NEXT{LITERAL}:   %35 = stablehlo.constant {value = dense<2147483647>} : tensor<i32>  // -:5
// CHECK-NEXT{LITERAL}:   %36 = stablehlo.reduce %34, %35 {dimensions = (1,), monoid = stablehlo.minimum} : tensor<8xi32>  // -:5
// CHECK-NEXT{LITERAL}:     region 0(%arg7: tensor<i32>, %arg8: tensor<i32>) -> (%37) {
// CHECK-NEXT{LITERAL}:       %37 = stablehlo.minimum %arg7, %arg8 : tensor<i32>  // -:5
// CHECK-NEXT{LITERAL}:     }
// CHECK-NEXT{LITERAL}:   %38 = stablehlo.broadcast_in_dim %28 {broadcast_dimensions = (0,)} : tensor<8x64xi32>  // -:5
// CHECK-NEXT{LITERAL}:   %39 = stablehlo.compare %5, %38 {comparison_direction = LT} : tensor<8x64xi1>  // -:5
// CHECK-NEXT{LITERAL}:   %40 = stablehlo.broadcast_in_dim %28 {broadcast_dimensions = (0,)} : tensor<8x64xi32>  // -:5
// CHECK-NEXT{LITERAL}:   %41 = stablehlo.compare %5, %40 {comparison_direction = EQ} : tensor<8x64xi1>  // -:5
// CHECK-NEXT{LITERAL}:   %42 = stablehlo.broadcast_in_dim %36 {broadcast_dimensions = (0,)} : tensor<8x64xi32>  // -:5
// CHECK-NEXT{LITERAL}:   %43 = stablehlo.compare %6, %42 {comparison_direction = GT} : tensor<8x64xi1>  // -:5
// CHECK-NEXT{LITERAL}:   %44 = stablehlo.and %41, %43 : tensor<8x64xi1>  // -:5
// CHECK-NEXT{LITERAL}:   %45 = stablehlo.or %39, %44 : tensor<8x64xi1>  // -:5
// CHECK-NEXT{LITERAL}:   %46 = stablehlo.reshape %8 : tensor<8x1xi32>  // -:5
// CHECK-NEXT{LITERAL}:   %47 = stablehlo.reshape %28 : tensor<8x1xi32>  // -:5
// CHECK-NEXT{LITERAL}:   %48 = stablehlo.concatenate %46, %47 {dimension = 1, window = 320} : tensor<8x2xi32>  // -:5
// CHECK-NEXT{LITERAL}:   %49 = stablehlo.constant {value = dense<0>} : tensor<8x2xi32>  // -:5
// CHECK-NEXT{LITERAL}:   %50 = stablehlo.compare %48, %49 {comparison_direction = LT} : tensor<8x2xi1>  // -:5
// CHECK-NEXT{LITERAL}:   %51 = stablehlo.constant {value = dense<2147483647>} : tensor<8x2xi32>  // -:5
// CHECK-NEXT{LITERAL}:   %52 = stablehlo.xor %48, %51 : tensor<8x2xi32>  // -:5
// CHECK-NEXT{LITERAL}:   %53 = stablehlo.select %50, %52, %48 : tensor<8x2xi32>  // -:5
// CHECK-NEXT{LITERAL}:   %54 = stablehlo.bitcast_convert %53 : tensor<8x2xf32>  // -:5
// CHECK-NEXT{LITERAL}:   %55 = stablehlo.reshape %15 : tensor<8x1xi32>  // -:5
// CHECK-NEXT{LITERAL}:   %56 = stablehlo.reshape %36 : tensor<8x1xi32>  // -:5
// CHECK-NEXT{LITERAL}:   %57 = stablehlo.concatenate %55, %56 {dimension = 1} : tensor<8x2xi32>  // -:5
// CHECK-NEXT{LITERAL}: }
