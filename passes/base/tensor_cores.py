"""What products take on a GPU's tensor cores: estimates, which nobody has compared with a device yet."""

from __future__ import annotations

from jstitch.device_spec import DeviceSpec

TENSOR_CORES = (8, 0)  # the first compute capability with mma.m16n8k16
LIBRARY = 0.7  # of the arithmetic on paper that XLA's library reaches
OURS = 0.5  # of what instructions of warps could do on paper, that our kernels reach


def tensor_seconds(products: float, device: DeviceSpec) -> float:
    """Of our kernels, where they fill the device. products: multiplications."""
    return products / (device.sms * device.clock * device.warp_macs * OURS)


def library_seconds(products: float, device: DeviceSpec) -> float:
    """Of XLA's library."""
    return products / (device.sms * device.clock * device.tensor_macs * LIBRARY)
