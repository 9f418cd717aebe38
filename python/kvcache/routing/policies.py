"""Policies by name. One of your own is a file and a line: an entry point of the group `kvcache.policies`.

[project.entry-points."kvcache.policies"]
MINE = "my_package:make_policy"    # takes PolicyOptions, returns a Policy
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kvcache.exceptions import ConfigError, ConfigFault
from kvcache.routing.base import Policy

if TYPE_CHECKING:
    from collections.abc import Callable
    from importlib.metadata import EntryPoint

__all__ = ["ENTRY_POINT_GROUP", "PolicyOptions", "make_policy", "policy_names"]

ENTRY_POINT_GROUP: Final = "kvcache.policies"


@dataclass(frozen=True, slots=True)
class PolicyOptions:
    """What can be set of any policy; each takes what it knows. Checked by the policy."""

    prefill_lambda: float = 0.5
    host_hit_weight: float = 0.5
    inflight_correction: bool = False
    target_ttft_ms: float = 1000.0
    target_tpot_ms: float = 50.0


def _round_robin(_options: PolicyOptions) -> Policy:
    from kvcache.routing.round_robin import RoundRobin  # noqa: PLC0415 (only what is used)

    return RoundRobin()


def _cache_aware(options: PolicyOptions) -> Policy:
    from kvcache.routing.cache_aware import CacheAware  # noqa: PLC0415 (only what is used)

    return CacheAware(
        options.prefill_lambda,
        options.host_hit_weight,
        inflight_correction=options.inflight_correction,
    )


def _slo_aware(options: PolicyOptions) -> Policy:
    try:
        from kvcache.routing.slo_aware import SloAware  # noqa: PLC0415 (needs numpy)
    except ImportError as error:
        raise ConfigError([ConfigFault("", f"SLO_AWARE needs numpy: {error}")]) from error

    return SloAware(target_ttft_ms=options.target_ttft_ms, target_tpot_ms=options.target_tpot_ms)


_POLICIES: Final[dict[str, Callable[[PolicyOptions], Policy]]] = {
    "RR": _round_robin,
    "CAR": _cache_aware,
    "SLO_AWARE": _slo_aware,
}


def make_policy(name: str, options: PolicyOptions | None = None) -> Policy:
    """The policy of that name, a new one each time. Raises `ConfigError`."""
    return _maker(name)(options or PolicyOptions())


def policy_names() -> tuple[str, ...]:
    """Every name that `make_policy` knows, those of installed packages last."""
    found = {entry.name for entry in _entry_points()} - _POLICIES.keys()
    return (*_POLICIES, *sorted(found))


def _maker(name: str) -> Callable[[PolicyOptions], Policy]:
    if name in _POLICIES:
        return _POLICIES[name]
    for entry in _entry_points():
        if entry.name == name:
            return _loaded(entry)
    known = ", ".join(policy_names())
    raise ConfigError([ConfigFault("", f"no policy is called {name!r}; there are: {known}")])


def _loaded(entry: EntryPoint) -> Callable[[PolicyOptions], Policy]:
    def make(options: PolicyOptions) -> Policy:
        try:
            policy = entry.load()(options)
        except ConfigError:
            raise
        except Exception as error:
            fault = f"the policy {entry.name} ({entry.value}) cannot be made: {error}"
            raise ConfigError([ConfigFault("", fault)]) from error
        if not isinstance(policy, Policy):
            fault = f"the policy {entry.name} ({entry.value}) is no policy: {type(policy).__name__}"
            raise ConfigError([ConfigFault("", fault)])
        return policy

    return make


def _entry_points() -> tuple[EntryPoint, ...]:
    from importlib.metadata import entry_points  # noqa: PLC0415 (slow to import)

    return tuple(entry_points(group=ENTRY_POINT_GROUP))
