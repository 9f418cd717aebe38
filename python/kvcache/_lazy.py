"""Names of a package that are imported when they are first asked for (PEP 562)."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["lazily"]


def lazily(package: str, places: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of a package whose `places` say in which module a name is."""

    def get(name: str) -> Any:
        module = places.get(name)
        if module is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(module), name)
        setattr(import_module(package), name, value)
        return value

    return get
