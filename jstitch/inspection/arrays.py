"""Arguments and results in .npz files.

NumPy has no names for bfloat16, float8 and 4-bit integers: such arrays are raw bytes there (`V2`, `V1`).
They are read as what the program expects, and so are unsigned integers of that width that hold their bits;
`numpy.savez` itself writes float8 arrays so that nobody can read them: give it `x.view(numpy.uint8)`.
"""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from jstitch.ir.types import DType, TensorType
from jstitch.runtime.whole_file import write_whole

_PREFIXES = ("arr_", "arg")
_NAMELESS = frozenset({DType.BF16, DType.F8E4M3FN, DType.F8E5M2, DType.S4, DType.U4})
_HINT = "Make one with numpy.savez(file, argument0, argument1, ...)."


def read_arrays(file: Path, types: Sequence[TensorType]) -> list[np.ndarray]:
    """One array per type, named arr_0, arr_1, ... (as `numpy.savez` does) or arg0, arg1, ...

    Raises ValueError for a file that is no .npz, or whose arrays do not fit, OSError where none is.
    """
    try:
        with np.load(file, allow_pickle=False) as loaded:
            if not isinstance(loaded, np.lib.npyio.NpzFile):
                raise ValueError(f"Expected a .npz file, found one array. {_HINT}")
            arrays = {name: loaded[name] for name in loaded.files}
    except (zipfile.BadZipFile, EOFError, KeyError) as error:
        raise ValueError(f"Expected a .npz file, found {error or 'an empty file'}. {_HINT}") from None
    if len(arrays) != len(types):
        raise ValueError(f"Expected {len(types)} arrays, found {len(arrays)} ({_listed(arrays)}). {_HINT}")
    return [_fit(n, _find(arrays, n), type_) for n, type_ in enumerate(types)]


def _listed(names: dict[str, np.ndarray]) -> str:
    shown = [*names][:8]
    return ", ".join([*shown, "..."] if len(names) > len(shown) else shown) or "none"


def _find(arrays: dict[str, np.ndarray], number: int) -> np.ndarray:
    for prefix in _PREFIXES:
        if f"{prefix}{number}" in arrays:
            return arrays[f"{prefix}{number}"]
    raise ValueError(f"Expected an array arr_{number} or arg{number}, found {_listed(arrays)}. {_HINT}")


def _fit(number: int, array: np.ndarray, type_: TensorType) -> np.ndarray:
    dtype = type_.dtype.numpy
    is_bits = array.dtype.kind in "Vu" and array.dtype.itemsize == dtype.itemsize
    if type_.dtype in _NAMELESS and is_bits:
        array = array.view(dtype)
    if array.dtype != dtype or array.shape != type_.shape:
        found = f"{array.dtype}{list(array.shape)}"
        raise ValueError(
            f"Expected argument {number} to be {dtype}{list(type_.shape)} ({type_}), found {found}."
        )
    return array


def write_arrays(file: Path, arrays: Sequence[np.ndarray]) -> None:
    """arr_0, arr_1, ... in a file that appears whole or not at all. Raises OSError."""
    named = [a.view(f"V{a.dtype.itemsize}") if DType.of(a.dtype) in _NAMELESS else a for a in arrays]
    write_whole(file, lambda opened: np.savez(opened, *named))
