"""Every timeout that users give: what is no number of seconds is refused by name."""

from __future__ import annotations

import math
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import kvcache
import pytest
from kvcache.discovery.config import EtcdConfig
from kvcache.testing import SimulatedEngine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Wait = Callable[[Any], object]

DEADLINE_S = 30.0
NOT_A_TIME = [math.nan, -1, -0.001, -math.inf]
NOT_A_NUMBER = ["5", b"5", [5], True, 1j]
FOR_EVER = [math.inf, 1e300, 10**400]


@pytest.fixture(scope="module")
def waits() -> Iterator[dict[str, Wait]]:
    """Each is over at once, or raises."""
    config = kvcache.KvEventsConfig.from_dict({"discovery": {"enabled": True}})
    with SimulatedEngine("e:1") as engine, kvcache.Directory(config) as directory:
        yield {
            "wait_synchronized": lambda timeout: directory.wait_synchronized(timeout=timeout),
            "wait_subscribed": lambda timeout: engine.wait_subscribed(timeout, count=0),
            "wait_snapshot_requests": lambda timeout: engine.wait_snapshot_requests(0, timeout),
        }


@pytest.mark.parametrize("name", ["wait_synchronized", "wait_subscribed", "wait_snapshot_requests"])
@pytest.mark.parametrize(
    ("value", "kind"),
    [*((one, ValueError) for one in NOT_A_TIME), *((one, TypeError) for one in NOT_A_NUMBER)],
)
def test_what_is_no_time_is_refused_by_name(
    waits: dict[str, Wait], name: str, value: Any, kind: type[Exception]
) -> None:
    with pytest.raises(kind) as caught:
        waits[name](value)
    assert type(caught.value) is kind
    right = "timeout must be a number of seconds from 0, or None or inf to wait for ever"
    assert str(caught.value).startswith(f"{right}: ")


@pytest.mark.parametrize("name", ["wait_synchronized", "wait_subscribed", "wait_snapshot_requests"])
@pytest.mark.parametrize(
    "value", [None, 0, -0.0, 1e-300, *FOR_EVER], ids=lambda value: repr(value)[:9]
)
def test_what_is_a_time_is_waited_for(waits: dict[str, Wait], name: str, value: Any) -> None:
    waits[name](value)


@pytest.mark.parametrize("value", ["math.inf", "1e300", "None"])
def test_a_wait_for_ever_lasts_until_it_is_interrupted(value: str) -> None:
    code = (
        "import math, kvcache\n"
        "engine = {'instance_name': 'e:1', 'endpoint': 'tcp://127.0.0.1:9',\n"
        "          'replay_endpoint': 'tcp://127.0.0.1:10'}\n"
        "config = kvcache.KvEventsConfig.from_dict({'streams': [engine]})\n"
        "with kvcache.Directory(config) as directory:\n"
        "    print('waits', flush=True)\n"
        f"    directory.wait_synchronized(timeout={value})\n"
    )
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"waits\n"
        time.sleep(0.3)
        assert process.poll() is None
        process.terminate()
        process.wait(DEADLINE_S)


@pytest.mark.parametrize("value", [*NOT_A_TIME, *NOT_A_NUMBER, 0, math.inf, None, 10**400])
def test_a_request_timeout_of_etcd_is_a_positive_number_of_seconds(value: Any) -> None:
    with pytest.raises(kvcache.ConfigError) as caught:
        EtcdConfig(endpoints=("127.0.0.1:2379",), request_timeout_s=value)
    (fault,) = caught.value.faults
    assert fault.path == "request_timeout_s"
    assert "must be a positive number of seconds" in fault.message
