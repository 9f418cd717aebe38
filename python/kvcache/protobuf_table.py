"""Protobuf messages from a table of names and field numbers, without generated code.

Generated code would tie this package to one major version of protobuf, and the names of others may be
in the default pool already, put there by another package with other descriptors. So each table is built
at import in a descriptor pool of its own, under a package name of its own. Names do not travel, numbers
do. Enumerations are int32 here, which is the same on the wire.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["build_messages"]

_FIELD = descriptor_pb2.FieldDescriptorProto
_SCALARS: Final = {
    "bool": _FIELD.TYPE_BOOL,
    "bytes": _FIELD.TYPE_BYTES,
    "float": _FIELD.TYPE_FLOAT,
    "int32": _FIELD.TYPE_INT32,
    "int64": _FIELD.TYPE_INT64,
    "string": _FIELD.TYPE_STRING,
    "uint32": _FIELD.TYPE_UINT32,
    "uint64": _FIELD.TYPE_UINT64,
}


def build_messages(package: str, table: Mapping[str, str]) -> dict[str, Any]:
    """The proto3 classes of `table` by name; `package` must be this table's own.

    An entry is a message's fields as `name:type=number`, `[type]` where repeated, with spaces between.
    The classes are made at run time, so they are `Any` to a type checker.
    """
    file = descriptor_pb2.FileDescriptorProto(
        name=f"{package}.proto", package=package, syntax="proto3"
    )
    for name, fields in table.items():
        described = file.message_type.add(name=name)
        for field in fields.split():
            _describe(field, package, described)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}"))
        for name in table
    }


def _describe(field: str, package: str, into: descriptor_pb2.DescriptorProto) -> None:
    name, _, rest = field.partition(":")
    kind, _, number = rest.partition("=")
    described = into.field.add(name=name, number=int(number), label=_FIELD.LABEL_OPTIONAL)
    if kind.startswith("["):
        kind = kind[1:-1]
        described.label = _FIELD.LABEL_REPEATED
    if kind in _SCALARS:
        described.type = _SCALARS[kind]
    else:
        described.type = _FIELD.TYPE_MESSAGE
        described.type_name = f".{package}.{kind}"
