"""`kvcache serve`: its flags, read into options for the server and for etcd."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from kvcache.cli.flags import MAX_PORT, TOKEN_VARIABLE, Flags
from kvcache.cli.policies import policies
from kvcache.exceptions import ConfigError

if TYPE_CHECKING:
    import argparse

    from kvcache.discovery.runner import DiscoveryOptions
    from kvcache.server.run import ServeOptions

__all__ = ["add_serve", "serve_options"]

_MAX_BODY_BYTES_CEILING: Final = 1 << 30
_ETCD_ROLES: Final = ("replica", "observer")
_ETCD_FLAGS: Final = ("etcd_namespace", "etcd_role", "etcd_cacert", "etcd_cert", "etcd_key")
_USERNAME: Final = "ETCD_USERNAME"
_PASSWORD: Final = "ETCD_PASSWORD"  # noqa: S105  (a name, not a secret)
# Where a fault of the etcd configuration was typed.
_TYPED_AT: Final = {
    "username": f"{_USERNAME}, {_PASSWORD}",
    "cert_path": "--etcd_cert, --etcd_key",
}


def add_serve(serve: argparse.ArgumentParser) -> None:
    """Declares the flags."""
    add = serve.add_argument
    add("--host", default="127.0.0.1", help="default 127.0.0.1")
    add("--port", default="8888", help="0 picks a free port; default 8888")
    add("--kv_events_config_file", default="", metavar="PATH", help="empty disables the index")
    add(
        "--etcd_addr", metavar="HOST:PORT[,…]", help="where instances register; needed by discovery"
    )
    add("--etcd_namespace", metavar="NS", help="prefix of all keys; default none")
    add(
        "--etcd_role",
        metavar="ROLE",
        help="replica (default), or observer, which never writes to etcd",
    )
    add("--etcd_cacert", metavar="PATH", help="certificates that etcd's is signed by, PEM")
    add("--etcd_cert", metavar="PATH", help="client certificate, PEM")
    add("--etcd_key", metavar="PATH", help="its key, PEM")
    add("--load_balance_policy", default="RR", metavar="NAME", help="RR (default), CAR, SLO_AWARE")
    add("--car_prefill_lambda", default="0.5", metavar="0…1", help="1: hits alone, 0: queues alone")
    add("--car_host_hit_weight", default="0.5", metavar="0…1", help="worth of a hit in Host only")
    add(
        "--car_inflight_correction",
        action="store_true",
        help="count our own choices since an instance's last load report",
    )
    add("--target_ttft", default="1000", metavar="MS", help="of SLO_AWARE; default 1000")
    add("--target_tpot", default="50", metavar="MS", help="of SLO_AWARE; default 50")
    add("--shadow_policy", metavar="NAME", help="a second policy, which is only counted")
    add("--shadow_car_prefill_lambda", metavar="0…1", help="default: as --car_prefill_lambda")
    add("--shadow_car_host_hit_weight", metavar="0…1", help="default: as --car_host_hit_weight")
    add(
        "--advertise_addr",
        metavar="HOST:PORT",
        help="what etcd shows of this replica; default the bound address",
    )
    add(
        "--rpc_port",
        default="0",
        metavar="PORT",
        help="where engines call over brpc; default 0: off",
    )
    add(
        "--internal_api_token",
        metavar="TOKEN",
        help=f"wanted in X-Internal-Token; better given in {TOKEN_VARIABLE}",
    )
    add("--max_body_bytes", metavar="N", help="larger bodies get 413; default 16 MiB")
    add("--log_level", default="info", help="debug, info (default), warning, error, critical")
    add("--log_format", default="text", help="text (default) or json")
    serve.epilog = f"{_USERNAME} and {_PASSWORD} are etcd's user, from the environment alone."


def serve_options(args: argparse.Namespace) -> ServeOptions:
    """Validates flags and configuration together. Raises `ConfigError` with every fault."""
    from kvcache.server.logs import LOG_FORMATS, LOG_LEVELS  # noqa: PLC0415
    from kvcache.server.run import ServeOptions  # noqa: PLC0415
    from kvcache.server.settings import (  # noqa: PLC0415
        DEFAULT_MAX_BODY_BYTES,
        ServerSettings,
    )

    flags = Flags()
    host = flags.host(args.host)
    port = flags.integer("--port", args.port, 0, MAX_PORT)
    token = flags.token(args.internal_api_token)
    max_body_bytes = DEFAULT_MAX_BODY_BYTES
    if args.max_body_bytes is not None:
        max_body_bytes = flags.integer(
            "--max_body_bytes", args.max_body_bytes, 1, _MAX_BODY_BYTES_CEILING
        )
    log_level = flags.choice("--log_level", args.log_level, LOG_LEVELS)
    log_format = flags.choice("--log_format", args.log_format, LOG_FORMATS)
    config = flags.config(args.kv_events_config_file)
    discovery = _discovery_options(args, flags)
    rpc_port = flags.integer("--rpc_port", args.rpc_port, 0, MAX_PORT)
    if rpc_port and args.etcd_addr is None:
        flags.add("--rpc_port", "needs --etcd_addr: engines call the master that etcd names")
    policy, shadow_policy = policies(args, flags)
    if config is not None and config.discovery is not None and args.etcd_addr is None:
        flags.add(
            "--etcd_addr", "is needed: the configuration has discovery, and etcd is its source"
        )
    flags.raise_any()
    return ServeOptions(
        host=host,
        port=port,
        config=config,
        discovery=discovery,
        rpc_port=rpc_port,
        policy=policy,
        shadow_policy=shadow_policy,
        log_level=log_level,
        log_format="json" if log_format == "json" else "text",
        settings=ServerSettings(internal_api_token=token, max_body_bytes=max_body_bytes),
    )


def _discovery_options(args: argparse.Namespace, flags: Flags) -> DiscoveryOptions | None:
    """Where instances register; None without `--etcd_addr`."""
    if args.etcd_addr is None:
        for name in (*_ETCD_FLAGS, "advertise_addr"):
            if getattr(args, name) is not None:
                flags.add(f"--{name}", "needs --etcd_addr")
        return None
    args.extras = "server,etcd"
    from kvcache.discovery.config import EtcdConfig  # noqa: PLC0415
    from kvcache.discovery.keys import Namespace  # noqa: PLC0415
    from kvcache.discovery.runner import DiscoveryOptions  # noqa: PLC0415

    role = flags.choice("--etcd_role", args.etcd_role or "replica", _ETCD_ROLES)
    advertised = None
    if args.advertise_addr is not None:
        advertised = flags.address("--advertise_addr", args.advertise_addr)
    try:
        etcd = EtcdConfig(
            endpoints=tuple(word.strip() for word in args.etcd_addr.split(",")),
            username=os.environ.get(_USERNAME, ""),
            password=os.environ.get(_PASSWORD, ""),
            ca_path=flags.file("--etcd_cacert", args.etcd_cacert),
            cert_path=flags.file("--etcd_cert", args.etcd_cert),
            key_path=flags.file("--etcd_key", args.etcd_key),
        )
        namespace = Namespace(args.etcd_namespace or "")
    except ConfigError as error:
        for fault in error.faults:
            path = _TYPED_AT.get(fault.path, "--etcd_addr")
            flags.add(path, fault.message)
        return None
    except ValueError as error:
        flags.add("--etcd_namespace", str(error))
        return None
    return DiscoveryOptions(
        etcd=etcd,
        namespace=namespace,
        role="observer" if role == "observer" else "replica",
        advertised=advertised,
    )
