"""The `kvcache` command.

Exit codes: 0 done, 1 the world did not allow it (port taken, service not reached, output not
written), 2 a bad flag or configuration, or an extra that is not installed. Every fault is one line
on stderr; all faults of flags and configuration are shown together. Heavy imports happen inside
the commands, so that `kvcache check` needs no HTTP server.
"""

# ruff: noqa: T201  (a command prints)
from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any, Final, NoReturn

from kvcache import __version__
from kvcache.cli.flags import MAX_PORT, TOKEN_VARIABLE, Flags
from kvcache.cli.output import OutputError, checked_output
from kvcache.cli.serve import add_serve, serve_options
from kvcache.config import KvEventsConfig
from kvcache.directory import refuse_unsupported
from kvcache.exceptions import ConfigError
from kvcache.server.stderr import tell
from kvcache.snapshot_size import snapshot_notes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvcache.server.client import Client

__all__ = ["main"]

_MAX_INTERVAL_SECONDS: Final = 86_400.0
"""A day; the system cannot sleep for any number of seconds."""


class _Parser(argparse.ArgumentParser):
    """Reports a bad flag as one line, without the usage."""

    def error(self, message: str) -> NoReturn:
        _complain(message)
        sys.exit(2)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command line and returns its exit code; `--help` and bad flags exit by themselves."""
    try:
        with checked_output():
            return _run(argv)
    except OutputError as error:
        _complain(f"cannot write the output: {error}")
        return 1


def _run(argv: Sequence[str] | None) -> int:
    args = _parser().parse_args(_underscored(sys.argv[1:] if argv is None else argv))
    try:
        return int(args.run(args))
    except ConfigError as error:
        for fault in error.faults:
            _complain(str(fault))
        return 2
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "kvcache":
            raise
        _complain(f"{error.name} is not installed: pip install 'kvcache[{args.extras}]'")
        return 2
    except KeyboardInterrupt:
        return 130


def _complain(message: str) -> None:
    tell(f"kvcache: {' '.join(message.splitlines())}")


def _underscored(argv: Sequence[str]) -> list[str]:
    """Flags with dashes become flags with underscores; values stay as they are."""
    words: list[str] = []
    for position, word in enumerate(argv):
        if word == "--":
            return [*words, *argv[position:]]
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            words.append(f"--{name.replace('-', '_')}{equals}{value}")
        else:
            words.append(word)
    return words


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="kvcache",
        description="A live directory of the KV-cache blocks that LLM inference engines hold.",
        epilog="Every flag is also accepted with dashes for underscores.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"kvcache {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True, parser_class=_Parser)
    add_serve(_command(commands, "serve", "follow engines and answer queries over HTTP", _serve))
    _add_demo(commands)

    check = _command(commands, "check", "validate a configuration file", _check)
    check.add_argument("config", metavar="CONFIG", help="JSON file")

    query = _command(commands, "query", "ask a service who holds a prompt", _query)
    _add_url(query)
    query.add_argument("token_ids", metavar="TOKENS", nargs="*", help="token ids of the prompt")

    status = _command(commands, "status", "show a service's streams as a live table", _status)
    _add_url(status)
    status.add_argument("--once", action="store_true", help="show once and exit")
    status.add_argument("--interval", default="1", metavar="SECONDS", help="default 1")
    status.epilog = "Where the output is no terminal, it shows once."
    return parser


def _command(commands: Any, name: str, text: str, run: Any) -> argparse.ArgumentParser:
    command: argparse.ArgumentParser = commands.add_parser(
        name, help=text, description=text, allow_abbrev=False
    )
    command.set_defaults(run=run, extras="server")
    return command


def _add_demo(commands: Any) -> None:
    demo = _command(commands, "demo", "the whole service on simulated engines", _demo)
    demo.set_defaults(extras="server,testing")
    demo.add_argument("--duration", metavar="SECONDS", help="default: until Ctrl-C")
    demo.add_argument("--host", default="127.0.0.1", help="default 127.0.0.1")
    demo.add_argument("--port", default="8888", help="0 picks a free port; default 8888")


def _add_url(command: argparse.ArgumentParser) -> None:
    command.add_argument("--url", default="http://127.0.0.1:8888", help="where the service is")
    command.add_argument(
        "--internal_api_token", metavar="TOKEN", help=f"better given in {TOKEN_VARIABLE}"
    )


# Commands


def _serve(args: argparse.Namespace) -> int:
    from kvcache.server.listen import BindError  # noqa: PLC0415
    from kvcache.server.run import serve  # noqa: PLC0415

    try:
        serve(serve_options(args))
    except (BindError, OSError) as error:
        # An address or threads that the system does not give: nothing that a traceback could help with.
        _complain(str(error))
        return 1
    return 0


def _demo(args: argparse.Namespace) -> int:
    from kvcache.demo import run_demo  # noqa: PLC0415

    faults = Flags()
    port = faults.integer("--port", args.port, 0, MAX_PORT)
    duration = (
        None if args.duration is None else faults.seconds("--duration", args.duration, minimum=0)
    )
    host = faults.host(args.host)
    faults.raise_any()
    return run_demo(host=host, port=port, duration_seconds=duration)


def _check(args: argparse.Namespace) -> int:
    config = KvEventsConfig.from_file(args.config)
    refuse_unsupported(config)
    print(f"{args.config}: valid")
    if config.discovery is None:
        print(f"streams: {len(config.streams)}")
    else:
        rule = config.discovery
        print("streams: of the instances in etcd")
        print(
            f"  events at port + {rule.event_port_offset} + rank,"
            f" replay at port + {rule.replay_port_offset} + rank,"
            f" topic {rule.topic!a}, block size {rule.block_size},"
            f" compared every {rule.refresh_interval_ms} ms"
        )
    for stream in config.streams:
        print(
            f"  {ascii(stream.instance_name)[1:-1]} rank {stream.dp_rank}:"
            f" events {stream.endpoint}, replay {stream.replay_endpoint},"
            f" topic {stream.topic!a}, block size {stream.block_size},"
            f" hash seed {stream.hash_seed}"
        )
    print("limits:")
    for name in (
        "max_streams",
        "max_blocks_per_stream",
        "max_message_bytes",
        "max_buffered_bytes",
        "replay_timeout_ms",
        "resync_interval_ms",
    ):
        print(f"  {name}: {getattr(config, name)}")
    for note in snapshot_notes(config):
        print(f"note: {note}")
    return 0


def _query(args: argparse.Namespace) -> int:
    from kvcache.server.client import ServiceError, query_table  # noqa: PLC0415

    faults = Flags()
    # Commas as people paste them from a list: `1,2,3` is three token ids.
    words = " ".join(args.token_ids).replace(",", " ").split()
    token_ids = [faults.integer("TOKENS", word, 0, 2**32 - 1) for word in words]
    try:
        with _client(args, faults) as client:
            print(query_table(client.query(token_ids), len(token_ids)))
    except ServiceError as error:
        _complain(str(error))
        return 1
    return 0


def _status(args: argparse.Namespace) -> int:
    from kvcache.server.client import ServiceError, watch_status  # noqa: PLC0415

    faults = Flags()
    interval = faults.seconds("--interval", args.interval, 0.1, _MAX_INTERVAL_SECONDS)
    once = args.once or not sys.stdout.isatty()
    try:
        with _client(args, faults) as client:
            watch_status(client, None if once else interval)
    except ServiceError as error:
        _complain(str(error))
        return 1
    except KeyboardInterrupt:
        print()
    return 0


def _client(args: argparse.Namespace, faults: Flags) -> Client:
    from kvcache.server.client import Client  # noqa: PLC0415

    token = faults.token(args.internal_api_token)
    url = faults.url(args.url)
    faults.raise_any()
    return Client(url, token)
