"""Which report of an instance's load counts (spec: service replicas).

Loads come twice: in heartbeats, to the replica that is master, and from etcd, where the master puts them for
the others. A heartbeat counts at once and for three seconds; after that, whichever arrived later.
A copy in etcd that is older than the registration was written about an earlier process and counts as nothing.
The clock is an argument: seconds of one monotonic clock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kvcache.registry.model import LoadReport

__all__ = ["HEARTBEAT_FIRST_S", "Loads", "counting_report"]

HEARTBEAT_FIRST_S: Final = 3.0
"""How long a heartbeat beats the copy in etcd, and how long the master uploads it, in seconds."""


def counting_report(
    heartbeat: LoadReport | None, etcd: LoadReport | None, now_s: float
) -> LoadReport | None:
    """Of two reports the one that counts at `now_s`; at equal arrival the heartbeat."""
    if heartbeat is None or etcd is None:
        return heartbeat or etcd
    if now_s < heartbeat.received_at_s + HEARTBEAT_FIRST_S:
        return heartbeat
    return etcd if etcd.received_at_s > heartbeat.received_at_s else heartbeat


class Loads:
    """The latest report of each instance by source. Not thread-safe; the registry guards it.

    Copies from etcd are kept for names that are not registered too: events of one etcd revision have no order,
    so a load may be told before its registration. Their number is that of the keys in etcd.
    """

    def __init__(self) -> None:
        self._heartbeats: dict[str, LoadReport] = {}
        self._copies: dict[str, tuple[LoadReport, int]] = {}

    def record_heartbeat(self, name: str, report: LoadReport) -> None:
        """A heartbeat of the registered process."""
        self._heartbeats[name] = report

    def put_copy(self, name: str, report: LoadReport, revision: int) -> None:
        """A copy in etcd, written at `revision`."""
        self._copies[name] = (report, revision)

    def delete_copy(self, name: str) -> bool:
        """The copy in etcd is gone; whether there was one."""
        return self._copies.pop(name, None) is not None

    def forget_process(self, name: str) -> None:
        """The process that sent heartbeats under this name is registered no more."""
        self._heartbeats.pop(name, None)

    def reports(self, name: str, revision: int) -> tuple[LoadReport | None, LoadReport | None]:
        """Heartbeat and copy of the process that registered at `revision`."""
        report, written = self._copies.get(name, (None, 0))
        return self._heartbeats.get(name), report if written >= revision else None

    def recent_heartbeats(self, now_s: float) -> dict[str, LoadReport]:
        """The heartbeats of the last `HEARTBEAT_FIRST_S`, by name in order."""
        return {
            name: report
            for name, report in sorted(self._heartbeats.items())
            if now_s < report.received_at_s + HEARTBEAT_FIRST_S
        }
