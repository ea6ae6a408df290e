"""Codecs between MLIR attributes and the plain Python values of the Graph, by the names the op table uses.

Most codecs turn one MLIR attribute into one Graph attribute of the same name. The structured ones
(`gather`, `scatter`, `dot`, `conv`) spread their fields over several: `dimension_numbers` of a gather
becomes `offset_dims`, `collapsed_slice_dims`, and so on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from jstitch.frontend.constants import decode_dense, encode_dense
from jstitch.frontend.mlir import ir, stablehlo
from jstitch.ir.graph import Op


class UnknownAttribute(Exception):
    """An attribute, or a value of one, that the table has no codec for: the op becomes opaque."""


@dataclass(frozen=True)
class Codec:
    """decode: (MLIR attribute) -> Python value. encode: the inverse. fields: names of a spread value."""

    decode: Callable[[Any], Any]
    encode: Callable[[Any], Any]
    fields: tuple[str, ...] = ()


def decode_attributes(source: ir.Operation, codecs: Mapping[str, str]) -> dict[str, Any]:
    """The Graph attributes of an MLIR op. Raises UnknownAttribute where a codec is missing.

    Unknown discardable attributes (`dialect.name`) are dropped, sharding annotations are not.
    """
    attrs: dict[str, Any] = {}
    attributes = source.attributes
    for name in map(_attribute_name, attributes):
        if name == "value" and codecs.get(name) == "dense":
            attrs[name] = decode_dense(source)
        elif name in codecs:
            attrs.update(_decode(name, CODECS[codecs[name]], attributes[name]))
        elif "." not in name or name in ("mhlo.sharding", "sdy.sharding"):
            raise UnknownAttribute(name)
    return attrs


def _attribute_name(entry: Any) -> str:
    """jaxlib's attribute maps have iterated over names and over (name, attribute) pairs."""
    return entry if isinstance(entry, str) else str(entry.name)


def _decode(name: str, codec: Codec, attribute: Any) -> dict[str, Any]:
    value = codec.decode(attribute)
    if codec.fields:
        return dict(value)
    return {} if value is None else {name: value}


def encode_attributes(op: Op, codecs: Mapping[str, str]) -> dict[str, ir.Attribute]:
    """The MLIR attributes of a Graph op, in the current context."""
    attributes: dict[str, ir.Attribute] = {}
    for name, kind in codecs.items():
        codec = CODECS[kind]
        if codec.fields and codec.fields[0] in op.attrs:
            attributes[name] = codec.encode({field: op.attrs[field] for field in codec.fields})
        elif name in op.attrs:
            attributes[name] = codec.encode(op.attrs[name])
    return attributes


def _struct(view: Any, *fields: str) -> Codec:
    def decode(attribute: Any) -> dict[str, Any]:
        typed = view(attribute)
        return {f: v if isinstance(v := getattr(typed, f), int) else tuple(v) for f in fields}

    return Codec(decode, lambda values: view.get(**values), fields)


def _enum(prefix: str) -> Codec:
    def decode(attribute: Any) -> str:
        return str(attribute).removeprefix(f"#stablehlo<{prefix} ").removesuffix(">")

    return Codec(decode, lambda value: ir.Attribute.parse(f"#stablehlo<{prefix} {value}>"))


def _decode_accuracy(attribute: Any) -> str | None:
    """The mode; the default one is not written down. Kernels' functions are as accurate as XLA's in any mode.

    Raises UnknownAttribute for a tolerance: that picks one of several implementations, which only XLA has.
    """
    match str(attribute).partition("result_accuracy_mode<")[2].partition(">")[0]:
        case "DEFAULT":
            return None
        case "HIGHEST":
            return "HIGHEST"
        case _:
            raise UnknownAttribute(str(attribute))


def _encode_accuracy(mode: str) -> Any:
    return ir.Attribute.parse(f"#stablehlo.result_accuracy<mode = #stablehlo.result_accuracy_mode<{mode}>>")


def _decode_pairs(attribute: Any) -> tuple[tuple[int, int], ...]:
    flat = [int(v) for v in attribute]
    return tuple(zip(flat[::2], flat[1::2], strict=True))


def _encode_pairs(value: tuple[tuple[int, int], ...]) -> Any:
    flat = [str(list(pair)) for pair in value]
    return ir.Attribute.parse(f"dense<[{', '.join(flat)}]> : tensor<{len(flat)}x2xi64>")


def _integer(bits: int) -> Codec:
    return Codec(lambda a: int(a.value), lambda v: ir.IntegerAttr.get(ir.IntegerType.get_signless(bits), v))


CODECS: dict[str, Codec] = {
    "i64": _integer(64),
    "i32": _integer(32),
    "bool": Codec(lambda a: bool(a.value), ir.BoolAttr.get),
    "dims": Codec(tuple, ir.DenseI64ArrayAttr.get),
    "bools": Codec(tuple, ir.DenseBoolArrayAttr.get),
    "pairs": Codec(_decode_pairs, _encode_pairs),
    "comparison_direction": _enum("comparison_direction"),
    "comparison_type": _enum("comparison_type"),
    "accuracy": Codec(_decode_accuracy, _encode_accuracy),
    "text": Codec(str, ir.Attribute.parse),
    "dense": Codec(decode_dense, encode_dense),
    "dot": _struct(
        stablehlo.DotDimensionNumbers,
        "lhs_batching_dimensions",
        "rhs_batching_dimensions",
        "lhs_contracting_dimensions",
        "rhs_contracting_dimensions",
    ),
    "gather": _struct(
        stablehlo.GatherDimensionNumbers,
        "offset_dims",
        "collapsed_slice_dims",
        "operand_batching_dims",
        "start_indices_batching_dims",
        "start_index_map",
        "index_vector_dim",
    ),
    "scatter": _struct(
        stablehlo.ScatterDimensionNumbers,
        "update_window_dims",
        "inserted_window_dims",
        "input_batching_dims",
        "scatter_indices_batching_dims",
        "scattered_dims_to_operand_dims",
        "index_vector_dim",
    ),
    "conv": _struct(
        stablehlo.ConvDimensionNumbers,
        "input_batch_dimension",
        "input_feature_dimension",
        "input_spatial_dimensions",
        "kernel_input_feature_dimension",
        "kernel_output_feature_dimension",
        "kernel_spatial_dimensions",
        "output_batch_dimension",
        "output_feature_dimension",
        "output_spatial_dimensions",
    ),
}
