"""The real command line where its output cannot be written, and where it is no terminal."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from serving import DEADLINE_SECONDS, Process

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

COMMAND = f"{sys.executable} -m kvcache"
OUTPUTS = {
    "full disk": ">/dev/full",
    "reader gone": "| true",
    "closed": ">&-",
}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    config = tmp_path_factory.mktemp("service") / "kv.json"
    engine = {
        "instance_name": "e:1",
        "endpoint": "tcp://127.0.0.1:18765",
        "replay_endpoint": "tcp://127.0.0.1:38765",
    }
    config.write_text(json.dumps({"streams": [engine]}))
    with Process("serve", "--port=0", "--kv_events_config_file", str(config)) as served:
        yield served.url()


def shell(line: str, **env: str) -> tuple[int, list[str], list[str]]:
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", line],  # noqa: S607
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
        env=os.environ | env,
    )
    return done.returncode, done.stdout.splitlines(), done.stderr.splitlines()


def with_output(command: str, output: str, **env: str) -> tuple[int, list[str], list[str]]:
    if output.startswith("|"):
        # The reader is gone before the first byte is written.
        command = f"{{ sleep 0.2; exec {command}; }}"
    return shell(f"{command} {output}", **env)


@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize(
    ("words", "unbuffered"),
    [
        ("--version", ""),
        ("serve --help", ""),
        ("check CONFIG", ""),
        ("check CONFIG", "1"),
        ("query 1 2 --url URL", ""),
        ("status --url URL", ""),
        ("status --once --url URL", "1"),
    ],
)
def test_output_that_cannot_be_written_is_exit_1_and_one_line(
    service: str, config_file: Path, words: str, output: str, unbuffered: str
) -> None:
    command = f"{COMMAND} {words.replace('CONFIG', str(config_file)).replace('URL', service)}"
    code, out, err = with_output(command, OUTPUTS[output], PYTHONUNBUFFERED=unbuffered)
    assert (code, out, len(err)) == (1, [], 1), err
    assert err[0].startswith("kvcache: cannot write the output: ")


@pytest.mark.parametrize("output", OUTPUTS)
def test_the_demo_ends_when_nobody_can_read_it(output: str) -> None:
    code, _, err = with_output(f"{COMMAND} demo --port 0 --duration 60", OUTPUTS[output])
    assert code == 1
    assert err[0].startswith("kvcache: serving on ")
    assert err[1:] != []
    assert all(line.startswith("kvcache: cannot write the output: ") for line in err[1:])
    assert len(err) == 2


def test_a_reader_that_has_seen_enough_is_told_on_one_line() -> None:
    code, out, err = shell(f"{COMMAND} demo --port 0 --duration 60 | head -1")
    assert code == 1
    assert out[0].startswith("POST ")
    assert len(out) == 1
    assert err[1:] == ["kvcache: cannot write the output: broken pipe"]


@pytest.mark.parametrize("words", ["check /nonexistent", "query x", "serve --port x", "--nonsense"])
@pytest.mark.parametrize("output", ["2>/dev/full", "2>&-", "2>&- >&-", "2>/dev/full >/dev/full"])
def test_faults_that_cannot_be_written_keep_their_exit_code(words: str, output: str) -> None:
    code, out, err = shell(f"{COMMAND} {words} {output}")
    assert (code, out, err) == (2, [], [])


@pytest.mark.parametrize("output", ["2>/dev/full", "2>&-", ">&-"])
def test_a_service_whose_words_cannot_be_written_serves(output: str) -> None:
    code, _, err = shell(
        f"{COMMAND} serve --port 0 {output} & server=$!; sleep 2; kill -TERM $server; wait $server"
    )
    assert code == 0
    assert not any("Traceback" in line for line in err)


def test_names_that_the_output_cannot_spell_are_escaped() -> None:
    code, out, err = shell(f"{COMMAND} serve --help", PYTHONIOENCODING="ascii")
    assert (code, err) == (0, [])
    assert any("\\u2026" in line for line in out)


def test_status_prints_once_where_it_is_no_terminal(service: str) -> None:
    code, out, err = shell(f"{COMMAND} status --url {service}")
    assert (code, err) == (0, [])
    assert sum(line.startswith("streams: ") for line in out) == 1
    assert not any("\x1b" in line for line in out)


def test_status_refreshes_on_a_terminal(service: str) -> None:
    leader, follower = os.openpty()
    command = [sys.executable, "-m", "kvcache", "status", "--url", service, "--interval", "0.1"]
    with subprocess.Popen(command, stdout=follower, stderr=subprocess.PIPE) as process:
        os.close(follower)
        seen = b""
        while seen.count(b"streams: ") < 3:
            seen += os.read(leader, 65536)
        process.terminate()
        process.wait(DEADLINE_SECONDS)
    os.close(leader)
    assert seen.count(b"\x1b[2J") >= 2


@pytest.mark.parametrize("value", ["1e300", "inf", "nan", "-1", "0", "x"])
def test_an_interval_that_cannot_be_slept_is_a_bad_flag(value: str) -> None:
    code, out, err = shell(f"{COMMAND} status --interval={value}")
    assert (code, out, len(err)) == (2, [], 1)
    assert err[0].startswith("kvcache: --interval: ")
