"""Policies by name, and those of other packages."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import EntryPoint
from typing import Any

import pytest
from kvcache import CacheAware, ConfigError, RoundRobin
from kvcache.routing import policies
from kvcache.routing.base import Accounting, Policy
from kvcache.routing.policies import PolicyOptions, make_policy, policy_names


@pytest.mark.parametrize("name", ["RR", "CAR", "SLO_AWARE"])
def test_known_policies(name: str) -> None:
    policy = make_policy(name)
    assert policy.name == name
    assert isinstance(policy, Policy)
    assert isinstance(policy, Accounting) == (name == "SLO_AWARE")
    assert make_policy(name) is not policy


def test_options_reach_their_policies() -> None:
    options = PolicyOptions(0.25, 0.75, inflight_correction=True)
    policy = make_policy("CAR", options)
    assert isinstance(policy, CacheAware)
    assert (policy.prefill_lambda, policy.host_hit_weight) == (0.25, 0.75)
    assert policy.inflight_correction
    with pytest.raises(ConfigError, match="target_tpot_ms"):
        make_policy("SLO_AWARE", PolicyOptions(target_tpot_ms=0))


def test_an_unknown_name_says_which_there_are() -> None:
    with pytest.raises(ConfigError, match="'NONE'; there are: RR, CAR, SLO_AWARE"):
        make_policy("NONE")


class Mine(RoundRobin):
    """Somebody else's."""


def mine(_options: PolicyOptions) -> Mine:
    return Mine()


def broken(_options: PolicyOptions) -> Mine:
    raise RuntimeError("out of luck")


def no_policy(_options: PolicyOptions) -> str:
    return "RR"


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    here = __name__
    entries = tuple(
        EntryPoint(name, value, policies.ENTRY_POINT_GROUP)
        for name, value in (
            ("MINE", f"{here}:mine"),
            ("BROKEN", f"{here}:broken"),
            ("NO_POLICY", f"{here}:no_policy"),
            ("GONE", "no_such_module:make"),
            ("RR", f"{here}:broken"),
        )
    )
    monkeypatch.setattr(policies, "_entry_points", lambda: entries)


@pytest.mark.usefixtures("installed")
def test_entry_points_are_found_and_never_replace_ours() -> None:
    assert isinstance(make_policy("MINE"), Mine)
    assert policy_names() == ("RR", "CAR", "SLO_AWARE", "BROKEN", "GONE", "MINE", "NO_POLICY")
    assert type(make_policy("RR")) is RoundRobin


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("name", "why"),
    [("BROKEN", "out of luck"), ("NO_POLICY", "is no policy: str"), ("GONE", "no_such_module")],
)
def test_what_cannot_be_made_is_a_fault_of_the_configuration(name: str, why: Any) -> None:
    with pytest.raises(ConfigError, match=why):
        make_policy(name)


def test_numpy_comes_with_slo_aware_alone() -> None:
    script = (
        "import sys, kvcache; from kvcache.routing.policies import make_policy\n"
        "make_policy('CAR'), make_policy('RR')\n"
        "assert 'numpy' not in sys.modules\n"
        "make_policy('SLO_AWARE')\n"
        "assert 'numpy' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
