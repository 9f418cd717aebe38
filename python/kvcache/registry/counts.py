"""`RegistryCounts`: what happened in the registry so far, for metrics."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from itertools import product
from typing import TYPE_CHECKING, Final

from kvcache.registry.model import State
from kvcache.registry.state import IgnoredReason

if TYPE_CHECKING:
    from typing import Self

__all__ = ["EventKind", "RegistryCounts"]


class EventKind(StrEnum):
    """What the registry was told."""

    PUT = "put"
    DELETE = "delete"
    PUT_LOAD = "put_load"
    DELETE_LOAD = "delete_load"
    HEARTBEAT = "heartbeat"
    PROBE = "probe"
    SET_ROLE = "set_role"


_STATES: Final = (None, *State)

_IGNORED: Final = (
    (EventKind.DELETE, IgnoredReason.NOT_REGISTERED),
    (EventKind.DELETE, IgnoredReason.OTHER_KEY),
    (EventKind.DELETE, IgnoredReason.OTHER_INCARNATION),
    (EventKind.DELETE, IgnoredReason.LEASE_LOST_ALREADY),
    (EventKind.PROBE, IgnoredReason.PROBE_CANCELLED),
    (EventKind.HEARTBEAT, IgnoredReason.NOT_REGISTERED),
    (EventKind.HEARTBEAT, IgnoredReason.OTHER_INCARNATION),
    (EventKind.SET_ROLE, IgnoredReason.NOT_REGISTERED),
    (EventKind.SET_ROLE, IgnoredReason.FIXED_ROLE),
)

_TRANSITIONS: Final = tuple(
    (before, after)
    for before, after in product(_STATES, _STATES)
    # Nothing registers as lost, and nothing leaves a state for itself.
    if before is not after and not (before is None and after is not State.ACTIVE)
)


@dataclass(slots=True)
class RegistryCounts:
    """Totals since the start; every cell is there from the start."""

    events: dict[EventKind, int] = field(default_factory=lambda: dict.fromkeys(EventKind, 0))
    ignored: dict[tuple[EventKind, IgnoredReason], int] = field(
        default_factory=lambda: dict.fromkeys(_IGNORED, 0)
    )
    transitions: dict[tuple[State | None, State | None], int] = field(
        default_factory=lambda: dict.fromkeys(_TRANSITIONS, 0)
    )
    """From one state to another, where None is not registered."""
    refreshed: int = 0
    """Registrations of a process that was registered already."""
    probes_cancelled: int = 0

    def copy(self) -> Self:
        """The totals now."""
        return type(self)(
            self.events.copy(),
            self.ignored.copy(),
            self.transitions.copy(),
            self.refreshed,
            self.probes_cancelled,
        )
