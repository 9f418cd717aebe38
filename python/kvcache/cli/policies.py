"""The flags of `kvcache serve` that say how instances are chosen."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kvcache.exceptions import ConfigError
from kvcache.routing.policies import PolicyOptions, make_policy

if TYPE_CHECKING:
    import argparse

    from kvcache.cli.flags import Flags
    from kvcache.routing.base import Policy

__all__ = ["policies"]

_LEAST_TARGET_MS = 0.001


def policies(args: argparse.Namespace, flags: Flags) -> tuple[Policy | None, Policy | None]:
    """The policy that decides, and the one that is only counted; None for a fault, and for none."""
    options = PolicyOptions(
        prefill_lambda=flags.share("--car_prefill_lambda", args.car_prefill_lambda),
        host_hit_weight=flags.share("--car_host_hit_weight", args.car_host_hit_weight),
        inflight_correction=args.car_inflight_correction,
        target_ttft_ms=flags.milliseconds("--target_ttft", args.target_ttft, _LEAST_TARGET_MS),
        target_tpot_ms=flags.milliseconds("--target_tpot", args.target_tpot, _LEAST_TARGET_MS),
    )
    shadow_options = replace(
        options,
        prefill_lambda=_shadowed(args, flags, "car_prefill_lambda", options.prefill_lambda),
        host_hit_weight=_shadowed(args, flags, "car_host_hit_weight", options.host_hit_weight),
    )
    policy = _policy("--load_balance_policy", args.load_balance_policy, options, flags)
    if args.shadow_policy is None:
        return policy, None
    return policy, _policy("--shadow_policy", args.shadow_policy, shadow_options, flags)


def _shadowed(args: argparse.Namespace, flags: Flags, name: str, real: float) -> float:
    """The shadow's weight; the real one's where it is not given."""
    flag, text = f"--shadow_{name}", getattr(args, f"shadow_{name}")
    if text is None:
        return real
    if args.shadow_policy is None:
        flags.add(flag, "needs --shadow_policy")
    return flags.share(flag, text)


def _policy(flag: str, name: str, options: PolicyOptions, flags: Flags) -> Policy | None:
    try:
        return make_policy(name, options)
    except ConfigError as error:
        for fault in error.faults:
            flags.add(flag, fault.message)
        return None
