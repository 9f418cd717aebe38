"""The `kvcache` command.

Exit codes: 0 done, 1 the world did not allow it (port taken, service not reached), 2 a bad flag
or configuration, or an extra that is not installed. Every fault is one line on stderr; all faults
of flags and configuration are shown together. Heavy imports happen inside the commands, so that
`kvcache check` needs no HTTP server.
"""

# ruff: noqa: T201  (a command prints)
from __future__ import annotations

import argparse
import math
import os
import sys
from typing import TYPE_CHECKING, Any, Final, NoReturn
from urllib.parse import urlsplit

from kvcache import __version__
from kvcache.config import KvEventsConfig
from kvcache.directory import refuse_unsupported
from kvcache.exceptions import ConfigError, ConfigFault

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvcache.server.client import Client
    from kvcache.server.run import ServeOptions

__all__ = ["main"]

_TOKEN_VARIABLE: Final = "KVCACHE_INTERNAL_API_TOKEN"  # noqa: S105  (a name, not a secret)
_MAX_PORT: Final = 65535
_MAX_BODY_BYTES_CEILING: Final = 1 << 30
_MAX_TOKEN_CHARS: Final = 4096


class _Parser(argparse.ArgumentParser):
    """Reports a bad flag as one line, without the usage."""

    def error(self, message: str) -> NoReturn:
        _complain(message)
        sys.exit(2)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command line and returns its exit code; `--help` and bad flags exit by themselves."""
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
    except BrokenPipeError:
        # The reader of our output has seen enough (`| head`); nothing is left to tell him.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return 130


def _complain(message: str) -> None:
    line = " ".join(message.splitlines())
    print(f"kvcache: {line}", file=sys.stderr)


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
    _add_serve(commands)
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
    return parser


def _command(commands: Any, name: str, text: str, run: Any) -> argparse.ArgumentParser:
    command: argparse.ArgumentParser = commands.add_parser(
        name, help=text, description=text, allow_abbrev=False
    )
    command.set_defaults(run=run, extras="server")
    return command


def _add_serve(commands: Any) -> None:
    serve = _command(commands, "serve", "follow engines and answer queries over HTTP", _serve)
    add = serve.add_argument
    add("--host", default="127.0.0.1", help="default 127.0.0.1")
    add("--port", default="8888", help="0 picks a free port; default 8888")
    add("--kv_events_config_file", default="", metavar="PATH", help="empty disables the index")
    add(
        "--internal_api_token",
        metavar="TOKEN",
        help=f"wanted in X-Internal-Token; better given in {_TOKEN_VARIABLE}",
    )
    add("--max_body_bytes", metavar="N", help="larger bodies get 413; default 16 MiB")
    add("--log_level", default="info", help="debug, info (default), warning, error, critical")
    add("--log_format", default="text", help="text (default) or json")


def _add_demo(commands: Any) -> None:
    demo = _command(commands, "demo", "the whole service on simulated engines", _demo)
    demo.set_defaults(extras="server,testing")
    demo.add_argument("--duration", metavar="SECONDS", help="default: until Ctrl-C")
    demo.add_argument("--host", default="127.0.0.1", help="default 127.0.0.1")
    demo.add_argument("--port", default="8888", help="0 picks a free port; default 8888")


def _add_url(command: argparse.ArgumentParser) -> None:
    command.add_argument("--url", default="http://127.0.0.1:8888", help="where the service is")
    command.add_argument(
        "--internal_api_token", metavar="TOKEN", help=f"better given in {_TOKEN_VARIABLE}"
    )


# Commands


def _serve(args: argparse.Namespace) -> int:
    from kvcache.server.listen import BindError  # noqa: PLC0415
    from kvcache.server.run import serve  # noqa: PLC0415

    try:
        serve(_serve_options(args))
    except (BindError, OSError) as error:
        # An address or threads that the system does not give: nothing that a traceback could help with.
        _complain(str(error))
        return 1
    return 0


def _demo(args: argparse.Namespace) -> int:
    from kvcache.demo import run_demo  # noqa: PLC0415

    faults = _Faults()
    port = faults.integer("--port", args.port, 0, _MAX_PORT)
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
    print(f"streams: {len(config.streams)}")
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
    return 0


def _query(args: argparse.Namespace) -> int:
    from kvcache.server.client import ServiceError, query_table  # noqa: PLC0415

    faults = _Faults()
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

    faults = _Faults()
    interval = faults.seconds("--interval", args.interval, minimum=0.1)
    try:
        with _client(args, faults) as client:
            watch_status(client, None if args.once else interval)
    except ServiceError as error:
        _complain(str(error))
        return 1
    except KeyboardInterrupt:
        print()
    return 0


def _client(args: argparse.Namespace, faults: _Faults) -> Client:
    from kvcache.server.client import Client  # noqa: PLC0415

    token = faults.token(args.internal_api_token)
    url = faults.url(args.url)
    faults.raise_any()
    return Client(url, token)


def _serve_options(args: argparse.Namespace) -> ServeOptions:
    """Validates flags and configuration together. Raises `ConfigError` with every fault."""
    from kvcache.server.logs import LOG_FORMATS, LOG_LEVELS  # noqa: PLC0415
    from kvcache.server.run import ServeOptions  # noqa: PLC0415
    from kvcache.server.settings import (  # noqa: PLC0415
        DEFAULT_MAX_BODY_BYTES,
        ServerSettings,
    )

    faults = _Faults()
    host = faults.host(args.host)
    port = faults.integer("--port", args.port, 0, _MAX_PORT)
    token = faults.token(args.internal_api_token)
    max_body_bytes = DEFAULT_MAX_BODY_BYTES
    if args.max_body_bytes is not None:
        max_body_bytes = faults.integer(
            "--max_body_bytes", args.max_body_bytes, 1, _MAX_BODY_BYTES_CEILING
        )
    log_level = faults.choice("--log_level", args.log_level, LOG_LEVELS)
    log_format = faults.choice("--log_format", args.log_format, LOG_FORMATS)
    config = faults.config(args.kv_events_config_file)
    faults.raise_any()
    return ServeOptions(
        host=host,
        port=port,
        config=config,
        log_level=log_level,
        log_format="json" if log_format == "json" else "text",
        settings=ServerSettings(internal_api_token=token, max_body_bytes=max_body_bytes),
    )


class _Faults:
    """Reads flags and keeps every fault; what it returns counts only after `raise_any`."""

    def __init__(self) -> None:
        self._faults: list[ConfigFault] = []

    def raise_any(self) -> None:
        """Raises `ConfigError` when there was any fault."""
        if self._faults:
            raise ConfigError(self._faults)

    def add(self, path: str, message: str) -> None:
        self._faults.append(ConfigFault(path, message))

    def integer(self, flag: str, text: str, minimum: int, maximum: int) -> int:
        # Digits only: int() would also take "1_0", " 1" and digits of other scripts.
        digits = text.lstrip("0") or "0"
        if text.isascii() and text.isdecimal() and len(digits) <= len(str(maximum)):
            value = int(digits)
            if minimum <= value <= maximum:
                return value
        self.add(flag, f"must be an integer from {minimum} to {maximum}: {ascii(text)[1:-1]}")
        return minimum

    def seconds(self, flag: str, text: str, minimum: float) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value) or value < minimum:
            self.add(flag, f"must be a number of seconds, at least {minimum}: {ascii(text)[1:-1]}")
            return minimum
        return value

    def choice(self, flag: str, text: str, choices: Sequence[str]) -> str:
        if text.lower() not in choices:
            self.add(flag, f"must be one of {', '.join(choices)}: {ascii(text)[1:-1]}")
        return text.lower()

    def host(self, text: str) -> str:
        if not text or not text.isprintable() or any(mark in text for mark in " /@"):
            self.add("--host", f"must be a host name or an address: {ascii(text)[1:-1]}")
        return text

    def url(self, text: str) -> str:
        try:
            parts = urlsplit(text)
            valid = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        except ValueError:
            valid = False
        if not valid:
            self.add("--url", f"must be http://host:port: {ascii(text)[1:-1]}")
        return text.rstrip("/")

    def token(self, flag: str | None) -> str | None:
        """The token of the flag, else of the environment. Faults never show it."""
        path, token = "--internal_api_token", flag
        if flag is None:
            path, token = _TOKEN_VARIABLE, os.environ.get(_TOKEN_VARIABLE)
        if token is None:
            return None
        if not token:
            # Taken as "no token", an unset variable in a script would open the interface.
            self.add(path, "must not be empty; leave it out to ask for no token")
        elif len(token) > _MAX_TOKEN_CHARS or not _sendable(token):
            self.add(
                path, f"must be at most {_MAX_TOKEN_CHARS} visible ASCII characters, no spaces"
            )
        return token

    def config(self, path: str) -> KvEventsConfig | None:
        """The configuration of a file, None for an empty path."""
        if not path:
            return None
        try:
            config = KvEventsConfig.from_file(path)
            refuse_unsupported(config)
        except ConfigError as error:
            self._faults.extend(error.faults)
            return None
        return config


def _sendable(token: str) -> bool:
    """Whether an HTTP header carries it unchanged: no spaces, controls or other scripts."""
    return all("!" <= character <= "~" for character in token)
