from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import NoReturn

import httpx
import pytest
from kvcache.cli import main
from kvcache.service import Service
from serving import DEADLINE_SECONDS, Process

TOKEN_VARIABLE = "KVCACHE_INTERNAL_API_TOKEN"  # noqa: S105


@pytest.fixture(autouse=True)
def no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)


def run(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, list[str], list[str]]:
    try:
        code = main(args)
    except SystemExit as done:
        code = int(done.code or 0)
    out, err = capsys.readouterr()
    return code, out.splitlines(), err.splitlines()


BAD_FLAGS = [
    (["--port", "65536"], ["--port"]),
    (["--port", "-1"], ["--port"]),
    (["--port", "8_0"], ["--port"]),
    (["--port", "٣"], ["--port"]),
    (["--port", "9" * 5000], ["--port"]),
    (["--host", ""], ["--host"]),
    (["--host", "a b"], ["--host"]),
    (["--log_level", "loud"], ["--log_level"]),
    (["--log-format=xml"], ["--log_format"]),
    (["--max-body-bytes", "0"], ["--max_body_bytes"]),
    (["--max_body_bytes", "1e6"], ["--max_body_bytes"]),
    (["--internal_api_token", ""], ["--internal_api_token"]),
    (["--internal-api-token", "a b"], ["--internal_api_token"]),
    (["--internal-api-token", "a\nb"], ["--internal_api_token"]),
    (["--nonsense"], ["nonsense"]),
    (["--por", "1"], ["--por"]),
    (["--etcd_addr", "127.0.0.1"], ["--etcd_addr"]),
    (["--etcd_addr", ""], ["--etcd_addr"]),
    (["--etcd_addr", "127.0.0.1:2379,http://b:2379"], ["--etcd_addr"]),
    (["--etcd_addr", "a:1", "--etcd_role", "master"], ["--etcd_role"]),
    (["--etcd-addr", "a:1", "--etcd-cert", "/dev/null"], ["--etcd_cert, --etcd_key"]),
    (["--etcd-addr", "a:1", "--etcd-cacert", "/nonexistent/ca.pem"], ["/nonexistent/ca.pem"]),
    (["--etcd-addr", "a:1", "--advertise_addr", "*:1"], ["--advertise_addr"]),
    (["--rpc_port", "8889"], ["--rpc_port"]),
    (["--rpc-port", "x"], ["--rpc_port"]),
    (["--etcd-namespace", "ns", "--etcd_role", "observer"], ["namespace", "role"]),
    (["--port"], ["--port"]),
    (["--kv_events_config_file", "/nonexistent/kv.json"], ["/nonexistent/kv.json"]),
    (["--port", "x", "--log_level", "y", "--max_body_bytes", "z"], ["--port", "body", "level"]),
    (["--port", "x", "--kv_events_config_file", "/nonexistent/kv.json"], ["--port", "kv.json"]),
]


@pytest.mark.parametrize(("flags", "faults"), BAD_FLAGS)
def test_bad_flags_exit_2_with_one_line_a_fault(
    capsys: pytest.CaptureFixture[str], flags: list[str], faults: list[str]
) -> None:
    code, out, err = run(capsys, "serve", *flags)
    assert (code, out) == (2, [])
    assert len(err) == len(faults), err
    for line, fault in zip(err, faults, strict=True):
        assert line.startswith("kvcache: ")
        assert fault in line


@pytest.mark.parametrize("token", ["", "two words", "täken", "x" * 5000])
def test_a_bad_token_of_the_environment_is_a_fault_that_does_not_show_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, token: str
) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, token)
    code, _, err = run(capsys, "serve")
    assert (code, len(err)) == (2, 1)
    assert err[0].startswith(f"kvcache: {TOKEN_VARIABLE}: ")
    assert not token or token not in err[0]


def test_discovery_without_etcd_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "kv.json"
    path.write_text('{"discovery": {"enabled": true}}')
    code, out, err = run(capsys, "serve", f"--kv-events-config-file={path}")
    assert (code, out, len(err)) == (2, [], 1)
    assert err[0].startswith("kvcache: --etcd_addr: ")
    assert "discovery" in err[0]


@pytest.mark.parametrize("variable", ["ETCD_USERNAME", "ETCD_PASSWORD"])
def test_half_credentials_are_refused_and_not_shown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.delenv("ETCD_USERNAME", raising=False)
    monkeypatch.delenv("ETCD_PASSWORD", raising=False)
    monkeypatch.setenv(variable, "hunter2")
    code, out, err = run(capsys, "serve", "--etcd_addr", "127.0.0.1:1")
    assert (code, out, len(err)) == (2, [], 1)
    assert err[0].startswith("kvcache: ETCD_USERNAME, ETCD_PASSWORD: ")
    assert "hunter2" not in err[0]


def test_check_shows_how_instances_become_streams(capsys: pytest.CaptureFixture[str]) -> None:
    example = Path(__file__).parents[2] / "examples" / "kv_events_discovery_config.json"
    code, out, err = run(capsys, "check", str(example))
    assert (code, err) == (0, [])
    text = "\n".join(out)
    assert "events at port + 10000 + rank, replay at port + 30000 + rank" in text
    assert "topic 'xllm-kv', block size 128" in text


def test_check_shows_streams_and_limits(
    capsys: pytest.CaptureFixture[str], config_file: Path
) -> None:
    code, out, err = run(capsys, "check", str(config_file))
    assert (code, err) == (0, [])
    text = "\n".join(out)
    assert "engine:8000 rank 0: events tcp://127.0.0.1:18765" in text
    assert "max_blocks_per_stream: 262144" in text


def test_check_lists_every_fault(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "kv.json"
    path.write_text('{"streams": [], "max_streams": "many", "nonsense": 1}')
    code, out, err = run(capsys, "check", str(path))
    assert (code, out) == (2, [])
    assert any("max_streams" in line for line in err)
    assert any("nonsense" in line for line in err)


def test_version_and_help_exit_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "--version")[0] == 0
    code, out, _ = run(capsys, "serve", "--help")
    assert code == 0
    assert any("--kv_events_config_file" in line for line in out)


@pytest.mark.parametrize("command", [["query", "1"], ["status", "--once"], ["status"]])
def test_a_service_out_of_reach_is_exit_1_and_one_line(
    capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        code, out, err = run(capsys, *command, "--url", url)
    assert (code, out, len(err)) == (1, [], 1)
    assert err[0].startswith(f"kvcache: cannot reach {url}: ")


@pytest.mark.parametrize(
    "words", [["-1"], ["1.5"], ["4294967296"], ["true"], ["--", "-1"], ["1", "x"]]
)
def test_bad_token_ids_exit_2(capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    code, out, err = run(capsys, "query", *words)
    assert (code, out, len(err)) == (2, [], 1)


@pytest.mark.parametrize("url", ["127.0.0.1:8888", "ftp://a", "http://", "http://a:b"])
def test_a_bad_url_exits_2(capsys: pytest.CaptureFixture[str], url: str) -> None:
    code, _, err = run(capsys, "query", "--url", url)
    assert (code, len(err)) == (2, 1)


def test_serve_query_status_and_a_clean_end(
    capsys: pytest.CaptureFixture[str], config_file: Path
) -> None:
    with Process("serve", "--port", "0", "--kv-events-config-file", str(config_file)) as served:
        url = served.url()
        assert url.startswith("http://127.0.0.1:")
        assert int(url.rpartition(":")[2]) > 0
        code, out, _ = run(capsys, "query", "--url", url, "1", "2,3")
        assert code == 0
        assert out[0] == "prompt: 3 tokens"
        assert "engine:8000" in out[2]
        code, out, _ = run(capsys, "status", "--url", url, "--once")
        assert code == 0
        assert "engine:8000" in out[2]
        started = time.monotonic()
        served.signal(signal.SIGTERM)
        assert served.wait() == 0
        assert time.monotonic() - started < 5
    assert not any("Traceback" in line for line in served.stderr)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_slow_client_does_not_hold_up_the_end(number: signal.Signals) -> None:
    with Process("serve", "--port=0") as served:
        host, _, port = served.url().removeprefix("http://").rpartition(":")
        with socket.create_connection((host, int(port)), timeout=DEADLINE_SECONDS) as slow:
            slow.sendall(
                b"POST /v1/internal/kv-cache/query HTTP/1.1\r\nHost: kv\r\n"
                b"Expect: 100-continue\r\nContent-Length: 9\r\n\r\n"
            )
            assert slow.recv(100).startswith(b"HTTP/1.1 100")  # its body is waited for
            started = time.monotonic()
            served.signal(number)
            assert served.wait() == 0
            assert time.monotonic() - started < 5
            assert slow.recv(4096).startswith(b"HTTP/1.1 503")
    assert not any("Traceback" in line for line in served.stderr)


def test_a_second_signal_does_not_wait() -> None:
    with Process("serve", "--port=0") as served:
        host, _, port = served.url().removeprefix("http://").rpartition(":")
        with socket.create_connection((host, int(port)), timeout=DEADLINE_SECONDS) as slow:
            slow.sendall(
                b"POST /v1/internal/kv-cache/query HTTP/1.1\r\nHost: kv\r\n"
                b"Expect: 100-continue\r\nContent-Length: 9\r\n\r\n"
            )
            assert slow.recv(100).startswith(b"HTTP/1.1 100")
            started = time.monotonic()
            served.signal(signal.SIGTERM)
            # The port closes when the first signal has been taken.
            while True:
                try:
                    socket.create_connection((host, int(port)), timeout=1).close()
                except OSError:
                    break
            served.signal(signal.SIGTERM)
            assert served.wait() == 0
            assert time.monotonic() - started < 2.5
    assert not any("Traceback" in line for line in served.stderr)


def test_a_taken_port_is_exit_1_and_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with Process("serve", "--port", str(port)) as served:
            assert served.wait() == 1
    assert served.stderr == [
        f"kvcache: cannot listen on http://127.0.0.1:{port}: address already in use"
    ]


def test_a_system_without_threads_is_exit_1_and_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(*_: object, **_options: object) -> NoReturn:
        message = "cannot start the ingest threads: Resource temporarily unavailable"
        raise OSError(message)

    monkeypatch.setattr(Service, "start", start)
    code, out, err = run(capsys, "serve", "--port=0")
    assert (code, out) == (1, [])
    assert [line for line in err if line.startswith("kvcache: ")] == [
        "kvcache: cannot start the ingest threads: Resource temporarily unavailable"
    ]
    assert not any("Traceback" in line for line in err)


def test_ipv6_is_bracketed() -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6 loopback")
    for host in ("::1", "[::1]"):
        with Process("serve", "--port=0", "--host", host) as served:
            url = served.url()
            assert url.startswith("http://[::1]:")
            assert httpx.get(f"{url}/health", trust_env=False).status_code == 200


def test_the_token_guards_and_is_never_written() -> None:
    token = "s3cret-Token"  # noqa: S105
    with Process("serve", "--port=0", "--log-level=debug", env={TOKEN_VARIABLE: token}) as served:
        url = served.url()
        path = f"{url}/v1/internal/streams"
        assert httpx.get(path, trust_env=False).status_code == 401
        given = {"X-Internal-Token": token}
        assert httpx.get(path, headers=given, trust_env=False).json() == {"streams": []}
        served.signal(signal.SIGINT)
        assert served.wait() == 0
    assert token not in "\n".join(served.stderr + served.stdout)


def test_json_logs_are_one_object_a_line() -> None:
    with Process("serve", "--port=0", "--log_format", "json") as served:
        ready = f"kvcache: serving on {served.url()}"
        served.signal(signal.SIGTERM)
        assert served.wait() == 0
    records = [json.loads(line) for line in served.stderr if line != ready]
    assert any("disabled" in record["message"] for record in records)
    assert {"time", "level", "logger", "message"} <= set(records[0])


@pytest.mark.parametrize(
    ("command", "missing", "extras"),
    [
        ("serve", "fastapi", "server"),
        ("serve", "uvicorn", "server"),
        ("query", "httpx", "server"),
        ("demo", "zmq", "server,testing"),
    ],
)
def test_a_missing_extra_is_named_on_one_line(command: str, missing: str, extras: str) -> None:
    code = (
        f"import sys; sys.modules[{missing!r}] = None\n"
        f"from kvcache.cli import main; sys.exit(main([{command!r}]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == f"kvcache: {missing} is not installed: pip install 'kvcache[{extras}]'\n"
