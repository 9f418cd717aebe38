"""`FrozenMapping`: a mapping that nobody changes, and that goes to other processes.

`types.MappingProxyType` can be neither pickled nor copied, nor can a value that holds one.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, KeysView, Mapping, ValuesView
from typing import TypeVar, overload

__all__ = ["FrozenMapping"]

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")
_Other = TypeVar("_Other")


class FrozenMapping(Mapping[_Key, _Value]):
    """Shows a dictionary that its maker no longer changes."""

    __slots__ = ("_shown",)

    def __init__(self, shown: dict[_Key, _Value]) -> None:
        self._shown = shown

    def __getitem__(self, key: _Key) -> _Value:
        return self._shown[key]

    def __iter__(self) -> Iterator[_Key]:
        return iter(self._shown)

    def __len__(self) -> int:
        return len(self._shown)

    def __contains__(self, key: object) -> bool:
        return key in self._shown

    # As fast as the dictionary's own, whose views change nothing either.

    @overload
    def get(self, key: _Key, /) -> _Value | None: ...
    @overload
    def get(self, key: _Key, default: _Value | _Other, /) -> _Value | _Other: ...
    def get(self, key: _Key, default: object = None, /) -> object:
        """The value of `key`, or else `default`."""
        return self._shown.get(key, default)

    def keys(self) -> KeysView[_Key]:
        """The keys, in order."""
        return self._shown.keys()

    def values(self) -> ValuesView[_Value]:
        """The values, in the order of the keys."""
        return self._shown.values()

    def items(self) -> ItemsView[_Key, _Value]:
        """Both, in order."""
        return self._shown.items()

    def __reduce__(self) -> tuple[type[FrozenMapping[_Key, _Value]], tuple[dict[_Key, _Value]]]:
        return type(self), (dict(self._shown),)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._shown!r})"
