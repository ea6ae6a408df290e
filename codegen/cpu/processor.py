"""The processor that kernels are compiled for: what LLVM says of this one, or NUMBA_CPU_FEATURES.

host_has("avx512f"), is_x86(), is_arm(), fuses()
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from llvmlite import binding
from numba.core import config


@dataclass(frozen=True)
class Processor:
    """triple: LLVM's name of the system. features: of the processor, named as LLVM names them."""

    triple: str
    features: frozenset[str]


@cache
def processor() -> Processor:
    """That Numba compiles for."""
    if config.CPU_FEATURES is not None:
        said = config.CPU_FEATURES.split(",")
        features = [feature[1:] for feature in said if feature.startswith("+")]
    else:
        features = [feature for feature, there in binding.get_host_cpu_features().items() if there]
    return Processor(binding.get_process_triple(), frozenset(features))


def host_has(feature: str) -> bool:
    """Whether it has a feature, such as "fma" or "avx512f"."""
    return feature in processor().features


def is_x86() -> bool:
    return processor().triple.startswith(("x86", "i386", "i686"))


def is_arm() -> bool:
    """Of 64 bits."""
    return processor().triple.startswith(("aarch64", "arm64"))


def fuses() -> bool:
    """Whether it has a fused multiply-add: x86 since AVX2, all others."""
    return host_has("fma") or not is_x86()
