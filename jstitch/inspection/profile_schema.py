"""The part of XLA's protocol buffers that says, in a profile, what its programs are.

Programs.FromString(bytes of an xplane.pb).planes[0].event_metadata[...]    a program is a stat's bytes
Hlo.FromString(those bytes).module.computations[0].instructions[0].frontend_attributes

Fields that are not named here are skipped. Numbers are those of xplane.proto, hlo.proto and xla_data.proto,
which keep them from version to version.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

_PACKAGE = "jstitch"
_MESSAGES = """
Space           planes=1:Plane*
Plane           name=2:string event_metadata=4:EventEntry* stat_metadata=5:StatEntry*
EventEntry      value=2:EventMetadata
EventMetadata   stats=5:Stat*
StatEntry       key=1:int64 value=2:StatMetadata
StatMetadata    name=2:string
Stat            metadata_id=1:int64 bytes_value=6:bytes
Hlo             module=1:Module
Module          name=1:string computations=3:Computation* id=5:int64 frames=17:FrameIndex
Computation     instructions=2:Instruction*
Instruction     name=1:string opcode=2:string metadata=7:Metadata frontend_attributes=68:Attributes
Metadata        op_name=2:string stack_frame_id=15:int64
Attributes      map=1:Attribute*
Attribute       key=1:string value=2:string
FrameIndex      files=1:string* functions=2:string* locations=3:FileLocation* frames=4:Frame*
FileLocation    file_id=1:int64 function_id=2:int64 line=3:int64
Frame           location_id=1:int64 parent_id=2:int64
"""
"""A message on each line, a field in each word: name=number:type, and * where there are many."""


def _message(line: str) -> DescriptorProto:
    name, *fields = line.split()
    return DescriptorProto(name=name, field=map(_field, fields))


def _field(text: str) -> FieldDescriptorProto:
    name, _, rest = text.partition("=")
    number, _, kind = rest.removesuffix("*").partition(":")
    label = "LABEL_REPEATED" if rest.endswith("*") else "LABEL_OPTIONAL"
    scalar = f"TYPE_{kind.upper()}"
    field = FieldDescriptorProto(name=name, number=int(number), label=label)
    if scalar in FieldDescriptorProto.Type.keys():
        field.type = FieldDescriptorProto.Type.Value(scalar)
    else:
        field.type, field.type_name = FieldDescriptorProto.TYPE_MESSAGE, f".{_PACKAGE}.{kind}"
    return field


def _pool() -> DescriptorPool:
    """One of our own: TensorFlow, where it is installed, has other definitions of the same messages."""
    lines = _MESSAGES.strip().splitlines()
    pool = DescriptorPool()
    pool.Add(FileDescriptorProto(name="profile.proto", package=_PACKAGE, message_type=map(_message, lines)))
    return pool


_POOL = _pool()
Space: Any = GetMessageClass(_POOL.FindMessageTypeByName(f"{_PACKAGE}.Space"))
Hlo: Any = GetMessageClass(_POOL.FindMessageTypeByName(f"{_PACKAGE}.Hlo"))


def modules(profile: bytes) -> Iterator[Any]:
    """HLO modules in a profile. Raises ValueError for other bytes."""
    try:
        yield from _modules(Space.FromString(profile))
    except DecodeError as error:
        raise ValueError(f"expected a profile, found bytes that are none: {error}") from None


def _modules(space: Any) -> Iterator[Any]:
    for plane in space.planes:
        names = {entry.key: entry.value.name for entry in plane.stat_metadata}
        for entry in plane.event_metadata:
            for stat in entry.value.stats:
                if names.get(stat.metadata_id) == "Hlo Proto":
                    yield Hlo.FromString(stat.bytes_value).module
