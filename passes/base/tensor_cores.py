"""What products take on a GPU's tensor cores: estimates, which nobody has compared with a device yet."""

from __future__ import annotations

from jstitch.device_spec import DeviceSpec
from jstitch.ir.types import DType

TENSOR_CORES = (8, 0)  # the first compute capability with mma.m16n8k16
LIBRARY = 0.7  # of the arithmetic on paper that XLA's library reaches
OURS = 0.5  # of what instructions of warps could do on paper, that our kernels reach


def tensor_seconds(products: float, device: DeviceSpec, dtype: DType) -> float:
    """Of our kernels, where they fill the device. products: multiplications of elements of the dtype."""
    return products * _slower(dtype) / (device.sms * device.clock * device.warp_macs * OURS)


def library_seconds(products: float, device: DeviceSpec, dtype: DType) -> float:
    """Of XLA's library."""
    return products * _slower(dtype) / (device.sms * device.clock * device.tensor_macs * LIBRARY)


def _slower(dtype: DType) -> int:
    """f32 is multiplied as tf32, at half the speed of 16 bits on every GPU that has both."""
    return 2 if dtype is DType.F32 else 1
