"""Error functions and the gamma family.

f32 erf and erf_inv are native f32 polynomials; the other f32 functions go through f64. f64: the C
library where it has the function; erf_inv is a polynomial start and one Halley step, digamma its
asymptotic series.
"""

from __future__ import annotations

import math

from jstitch.codegen.cpu.exponential import TERMS32, TERMS64, clamp, exp_parts, log, log64, odd_ratio
from jstitch.codegen.cpu.expression import Value, polynomial, select

# erf(x)/x = P(x^2)/Q(x^2) on |x| <= ERF_LIMIT, error 2e-8; above it is 1
ERF_LIMIT = 3.93
ERF_P = (
    *(1.1283791454362713, 0.19076864916281559, 0.052788190049140808),
    *(0.0037789257314743441, 0.0002847879599108619, 2.0420234024500913e-6),
)
ERF_Q = (
    *(1.0, 0.50239703677568348, 0.11425116457610429),
    *(0.014996083891475234, 0.0011650364966053113, 3.8003529715295887e-5),
)
# e^(a^2) erfc(a) in (a-2)/(a+2), 0 <= a <= ERFC_LIMIT, error 6e-11; above it erfc is 0
ERFC_LIMIT = 10.2
ERFCX = (
    *(0.25539567631848753, -0.42718584763803629, 0.24165819338491191, -0.078978569328048927),
    *(0.0037329089232337928, 0.0069972932543159351, -0.00084729267317414527, -0.00098094245447346152),
    *(4.4386062358661533e-5, 0.00017127297784478181, 2.4749362442087591e-5, -2.3275578201821451e-5),
    *(-9.0194441542555056e-6, -3.2924199323051339e-7),
)
# erf_inv(x)/x, w = -log(1-x^2): in w - 2.5 to w = 5, in sqrt(w) - 3 to 16, in sqrt(w) - 5 to 37; error 1e-7
ERFINV_CENTRAL = (
    *(1.5014094215414927, 0.2466407261892491, -0.0041777076869189848, -0.0012537075747551625),
    *(0.00021860216065204129, -4.3967643255665762e-6, -3.5288524240443295e-6, 3.4372557094868569e-7),
    *(2.853428709915724e-8,),
)
ERFINV_TAIL = (
    *(2.8329769531187783, 1.0016740682216062, 0.0094372072954385048, -0.0076229759929089689),
    *(0.0057512748388780991, -0.0036694780338119712, 0.0013232917407545724, 9.5788174937075524e-5),
    *(-0.00018207740099801279,),
)
ERFINV_FAR = (
    *(4.8499063970617121, 1.0103002962634287, -0.00013865014822448061, -0.00021382364150462749),
    *(7.5732626538729209e-5, -2.1804239770888608e-5, 4.9658824359820298e-6),
)
# B_2k / (2k (2k-1)) and B_2k / 2k for k = 1..8
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510)
LGAMMA_SERIES = tuple(b / ((2 * k) * (2 * k - 1)) for k, b in enumerate(_BERNOULLI, 1))
DIGAMMA_SERIES = tuple(b / (2 * k) for k, b in enumerate(_BERNOULLI, 1))
SHIFT = 8  # the asymptotic series start at x + SHIFT


def erf(x: Value) -> Value:
    if x.is_double:
        return x.libm("erf")
    return odd_ratio(x, ERF_P, ERF_Q, ERF_LIMIT)


def erfc(x: Value) -> Value:
    if x.is_double:
        return x.libm("erfc")
    wide = x.to_double()
    a = clamp(wide.abs(), 0.0, ERFC_LIMIT)
    small, scale = exp_parts(-(a * a), 9)
    tail = scale.fma(small, scale) * polynomial((a - 2.0) / (a + 2.0), ERFCX)
    return select(wide < 0.0, 2.0 - tail, tail).to_single()


def erf_inv(x: Value) -> Value:
    """NaN outside [-1, 1]."""
    if x.is_double:
        return _erf_inv64(x)
    w = -log((1.0 - x) * (x + 1.0))
    result = x * _erf_inv_ratio(w)
    return select(x.abs().equals(1.0), x * math.inf, result)


def _erf_inv_ratio(w: Value) -> Value:
    """erf_inv(x) / x as a function of w = -log(1 - x^2)."""
    central = polynomial(w - 2.5, ERFINV_CENTRAL)
    root = w.sqrt()
    tail = polynomial(root - 3.0, ERFINV_TAIL)
    if w.is_double:
        tail = select(w < 16.0, tail, polynomial(root - 5.0, ERFINV_FAR))
    return select(w < 5.0, central, tail)


def _erf_inv64(x: Value) -> Value:
    """The polynomial, then one Halley step on erfc(z) = 1 - |x| (on erf(z) = |x| in the middle)."""
    a = x.abs()
    z = a * _erf_inv_ratio(-log((1.0 - a) * (a + 1.0)))
    error = select(a < 0.5, z.libm("erf") - a, (1.0 - a) - z.libm("erfc"))
    step = error * (-z * -z).libm("exp") * (math.sqrt(math.pi) / 2)
    refined = z - step / step.fma(z, 1.0)
    result = select(a.equals(1.0), math.inf, refined)
    return select(a < 1e-8, a * (math.sqrt(math.pi) / 2), result).with_sign_of(x)


def _sin_pi(x: Value) -> Value:
    """|sin(pi x)| of an f64, through the distance to the nearest integer."""
    distance = (x - x.call("llvm.rint")).abs() * math.pi
    square = distance * distance
    series = [(-1) ** k / math.factorial(2 * k + 1) for k in range(10)]
    return distance * polynomial(square, series)


def lgamma(x: Value) -> Value:
    """log |gamma(x)|: Stirling's series at x + SHIFT; reflected below 1/2."""
    if x.is_double:
        return x.libm("lgamma")
    wide = x.to_double()
    reflect = wide < 0.5
    z = select(reflect, 1.0 - wide, wide)
    product = z
    for k in range(1, SHIFT):
        product = product * (z + float(k))
    y = z + float(SHIFT)
    stirling = (y - 0.5) * log64(y, TERMS64) - y + 0.5 * math.log(2 * math.pi)
    inverse = 1.0 / y
    stirling = inverse.fma(polynomial(inverse * inverse, LGAMMA_SERIES), stirling)
    return _lgamma_reflect(x, wide, reflect, stirling, product)


def _lgamma_reflect(x: Value, wide: Value, reflect: Value, stirling: Value, product: Value) -> Value:
    """lgamma(x) = stirling - log(product), or log(pi / |sin(pi x)|) minus that."""
    sine = _sin_pi(wide)
    argument = select(reflect, product * (math.pi) / sine, product)
    logarithm = log64(argument, TERMS64)
    result = select(reflect, logarithm - stirling, stirling - logarithm)
    result = select(x.equals(1.0) | x.equals(2.0), 0.0, result)
    pole = reflect & sine.equals(0.0)
    return select(pole | x.abs().equals(math.inf), math.inf, select(x.is_nan(), math.nan, result).to_single())


def digamma(x: Value) -> Value:
    """The derivative of lgamma; NaN at the poles -1, -2, ... and at -inf, -inf at +-0."""
    wide = x.to_double()
    reflect = wide < 0.5
    z = select(reflect, 1.0 - wide, wide)
    product, derivative = z, z.constant(1.0)
    for k in range(1, SHIFT):
        factor = z + float(k)
        derivative = derivative.fma(factor, product)
        product = product * factor
    y = z + float(SHIFT)
    inverse = 1.0 / y
    square = inverse * inverse
    tail = square.fma(polynomial(square, DIGAMMA_SERIES), inverse * 0.5)
    result = log64(y, TERMS64) - tail - derivative / product
    return _digamma_reflect(x, wide, reflect, result)


def _digamma_reflect(x: Value, wide: Value, reflect: Value, result: Value) -> Value:
    """digamma(x) = digamma(1 - x) - pi / tan(pi x)"""
    distance = (wide - wide.call("llvm.rint")) * math.pi
    square = distance * distance
    sine = distance * polynomial(square, [(-1) ** k / math.factorial(2 * k + 1) for k in range(10)])
    cosine = polynomial(square, [(-1) ** k / math.factorial(2 * k) for k in range(11)])
    result = select(reflect, result - math.pi * cosine / sine, result)
    result = select(x.is_nan() | (reflect & sine.equals(0.0)), math.nan, result)
    result = select(wide.equals(0.0), -math.inf, result)
    result = select(wide > 1e36, log64(wide, TERMS32), result)
    result = select(wide.equals(math.inf), math.inf, result)
    return result if x.is_double else result.to_single()
