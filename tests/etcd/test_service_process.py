"""`kvcache serve` with discovery alone: a process, a real etcd, real engines."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
from etcd_server import free_port
from kvcache.rpc.messages import message, parse
from kvcache.rpc.service import SERVICE_NAME
from kvcache.testing import ReplayFault
from registered import BLOCK, Registered, eventually, prompt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from etcd_server import Certificates, Etcd

EXAMPLE = Path(__file__).parents[2] / "examples" / "kv_events_discovery_config.json"
PROMPT = prompt(1, 4)


class Served:
    def __init__(self, stack: ExitStack, etcd: Etcd, *flags: str, env: dict[str, str]) -> None:
        words = ["--port", "0", "--etcd_addr", etcd.endpoint, *flags]
        self.process = stack.enter_context(
            subprocess.Popen(
                [sys.executable, "-m", "kvcache", "serve", *words],
                stderr=subprocess.PIPE,
                text=True,
                env=env,
            )
        )
        stack.callback(self.process.kill)
        self.lines: list[str] = []
        threading.Thread(target=self._read, daemon=True).start()
        eventually(lambda: self.ready, f"ready: {self.lines}")

    def _read(self) -> None:
        assert self.process.stderr
        self.lines.extend(self.process.stderr)

    @property
    def ready(self) -> str:
        found = re.search(r"serving on (http://\S+)", "".join(self.lines))
        return found[1] if found else ""

    def get(self, path: str) -> Any:
        answer = httpx.get(self.ready + path, trust_env=False)
        assert answer.status_code == 200, answer.text
        return answer.json() if "json" in answer.headers["content-type"] else answer.text

    def post(self, path: str, body: object) -> httpx.Response:
        return httpx.post(self.ready + path, json=body, trust_env=False)

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(10)


@contextmanager
def serving(etcd: Etcd, *flags: str, **env: str) -> Iterator[Served]:
    with ExitStack() as stack:
        flags = ("--kv_events_config_file", str(EXAMPLE), *flags)
        yield Served(stack, etcd, *flags, env=os.environ | env)


def test_discovery_alone_from_start_to_end(etcd: Etcd) -> None:
    with Registered(etcd) as one, serving(etcd) as served:
        one.register()
        one.engines[0].prefill(PROMPT)

        def device_hits() -> list[int]:
            answer = served.post("/v1/internal/kv-cache/query", {"token_ids": PROMPT})
            return [match["device_hit_tokens"] for match in answer.json()["matches"]]

        eventually(lambda: device_hits() == [4 * BLOCK], "the hit")
        beat = {
            "name": one.name,
            "incarnation_id": "i1",
            "load_metrics": {"waiting_requests_num": 2, "gpu_cache_usage_perc": 0.5},
        }
        assert served.post("/v1/internal/heartbeat", beat).status_code == 200
        body = served.get("/v1/internal/instances")
        (row,) = body["instances"]
        assert (row["instance_name"], row["state"], row["streams"]) == (one.name, "ACTIVE", 1)
        assert row["load"]["waiting_requests_num"] == 2
        assert body["etcd"]["connected"] is True
        assert served.get("/ready")["etcd"] == "connected"
        shown = subprocess.run(
            [sys.executable, "-m", "kvcache", "status", "--once", "--url", served.ready],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        assert "instances: 1, etcd: connected, this replica: " in shown
        assert re.search(rf"{one.name} +PREFILL +PREFILL +ACTIVE +1 +1 +2 +50%", shown)
        assert "kvcache_etcd_connected 1.0" in served.get("/metrics")
        etcd.kill()
        eventually(lambda: served.get("/ready")["etcd"] == "disconnected", "etcd is lost")
        assert served.get("/v1/internal/instances")["etcd"]["error"]
        assert device_hits() == [4 * BLOCK]
        assert served.stop() == 0


def test_car_sends_a_prompt_to_who_holds_it(etcd: Etcd) -> None:
    flags = ("--load_balance_policy", "CAR", "--shadow_policy", "RR")
    with Registered(etcd) as one, Registered(etcd) as other, serving(etcd, *flags) as served:
        for instance in (one, other):
            instance.register()
        decoder = Registered(etcd, kind="DECODE").register()
        one.engines[0].prefill(PROMPT)

        def route() -> dict[str, Any]:
            for name in (one.name, other.name, decoder.name):
                load = {"waiting_requests_num": 1, "gpu_cache_usage_perc": 0.5}
                body = {"name": name, "incarnation_id": "i1", "load_metrics": load}
                served.post("/v1/internal/heartbeat", body)
            return dict(served.post("/v1/internal/route", {"token_ids": PROMPT}).json())

        def ratios() -> dict[str, float]:
            return {
                terms["instance_name"]: terms["kv_hit_ratio"]
                for terms in route().get("candidates", ())
                if terms["role"] == "prefill"
            }

        eventually(lambda: ratios() == {one.name: 1.0, other.name: 0.0}, "the holder is known")
        chosen = route()
        assert (chosen["prefill"], chosen["decode"]) == (one.name, decoder.name)
        # A new process at the old address counts for nothing, from the moment that it is known.
        one.engines[0].faults.arm_replay(ReplayFault.HOLD, None)
        one.register("i2")
        load = {"waiting_requests_num": 1, "gpu_cache_usage_perc": 0.5}
        beat = {"name": one.name, "incarnation_id": "i2", "load_metrics": load}
        eventually(lambda: served.post("/v1/internal/heartbeat", beat).status_code == 200, "known")
        terms = served.post("/v1/internal/route", {"token_ids": PROMPT}).json()["candidates"]
        assert {one["kv_hit_ratio"] for one in terms} == {0.0}


def test_secrets_are_in_no_log(new_etcd: Callable[..., Etcd]) -> None:
    etcd = new_etcd().start()
    etcd.enable_auth()
    env = {"ETCD_USERNAME": "root", "ETCD_PASSWORD": "hunter2", "GRPC_VERBOSITY": "debug"}
    with serving(etcd, "--log_level", "debug", **env) as served:
        eventually(lambda: "refuses the user name" in "".join(served.lines), "it was refused")
        assert served.get("/ready")["etcd"] == "disconnected"
        assert served.stop() == 0
    text = "".join(served.lines)
    assert "hunter2" not in text
    assert "Traceback" not in text


def test_a_killed_master_hands_over_and_followers_see_its_loads(etcd: Etcd) -> None:
    with Registered(etcd) as one, serving(etcd) as first:
        one.register()
        replica = eventually_is_master(first)
        assert etcd.ctl("get", "XLLM:SERVICE:MASTER", "--print-value-only").strip() == replica
        with serving(etcd) as second:
            beat = {
                "name": one.name,
                "incarnation_id": "i1",
                "load_metrics": {"waiting_requests_num": 7, "gpu_cache_usage_perc": 0.5},
            }

            def load_at_second() -> Any:
                assert first.post("/v1/internal/heartbeat", beat).status_code in {200, 404}
                rows = second.get("/v1/internal/instances")["instances"]
                return rows and rows[0]["load"]

            eventually(load_at_second, "the load by way of etcd")
            shown = load_at_second()
            assert (shown["waiting_requests_num"], shown["source"]) == (7, "etcd")
            assert second.get("/v1/internal/instances")["replica"]["role"] == "follower"
            first.process.kill()
            took = eventually(lambda: is_master(second), "handed over", within_s=8)
            assert took < 3 + 1 + 1, "lease, etcd's own tick, election"
            assert second.stop() == 0
        # A stopped replica frees its keys; the killed one's have lapsed.
        assert etcd.ctl("get", "XLLM:SERVICE", "--prefix", "--keys-only").strip() == ""


def is_master(served: Served) -> bool:
    return bool(served.get("/v1/internal/instances")["replica"]["is_master"])


def eventually_is_master(served: Served) -> str:
    eventually(lambda: is_master(served), "elected")
    assert "kvcache_etcd_is_master 1.0" in served.get("/metrics")
    return served.ready.removeprefix("http://")


def test_an_observer_takes_no_part(etcd: Etcd) -> None:
    with serving(etcd, "--etcd_role", "observer") as served:
        eventually(lambda: served.get("/ready")["etcd"] == "connected", "connected")
        assert served.get("/v1/internal/instances")["replica"] is None
        assert served.stop() == 0
    assert etcd.ctl("get", "", "--prefix", "--keys-only").strip() == ""


def call(address: str, method: str, body: bytes) -> bytes:
    """One call as an engine makes it; the body of a good answer."""
    called = message(
        "RpcRequestMeta", service_name=SERVICE_NAME.encode(), method_name=method.encode()
    )
    meta = message("RpcMeta", request=called, correlation_id=7).SerializeToString()
    sizes = (len(meta) + len(body)).to_bytes(4, "big") + len(meta).to_bytes(4, "big")
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=10) as engine:
        engine.sendall(b"PRPC" + sizes + meta + body)
        head = engine.recv(12, socket.MSG_WAITALL)
        assert head[:4] == b"PRPC"
        rest = engine.recv(int.from_bytes(head[4:8], "big"), socket.MSG_WAITALL)
    answer = parse("RpcMeta", rest[: int.from_bytes(head[8:], "big")])
    assert (answer.correlation_id, answer.response.error_code) == (7, 0)
    return rest[int.from_bytes(head[8:], "big") :]


def test_engines_call_the_master_that_etcd_names(etcd: Etcd) -> None:
    port = free_port()
    with Registered(etcd) as one, serving(etcd, "--rpc_port", str(port)) as served:
        one.register()
        eventually_is_master(served)
        master = etcd.ctl("get", "XLLM:SERVICE:MASTER", "--print-value-only").strip()
        assert master == f"127.0.0.1:{port}"
        name = served.ready.removeprefix("http://")
        assert etcd.ctl("get", f"XLLM:SERVICE:{name}", "--print-value-only").strip() == master
        eventually(lambda: served.get("/v1/internal/instances")["instances"], "registered")
        load = message("LoadMetrics", waiting_requests_num=9, gpu_cache_usage_perc=0.5)
        beat = message(
            "HeartbeatRequest", name=one.name.encode(), incarnation_id=b"i1", load_metrics=load
        )
        assert parse("Status", call(master, "Heartbeat", beat.SerializeToString())).ok
        (row,) = served.get("/v1/internal/instances")["instances"]
        assert (row["load"]["waiting_requests_num"], row["load"]["source"]) == (9, "heartbeat")
        assert 'kvcache_registry_rpc_calls_total{code="0"} 1.0' in served.get("/metrics")
        assert served.stop() == 0


def test_tls_and_a_client_certificate_by_flags(
    new_etcd: Callable[..., Etcd], certificates: Certificates
) -> None:
    demanding = ("--client-cert-auth", f"--trusted-ca-file={certificates.ca}")
    etcd = new_etcd(certificates=certificates, args=demanding).start()
    flags = (
        *("--etcd_cacert", str(certificates.ca)),
        *("--etcd_cert", str(certificates.client_cert)),
        *("--etcd_key", str(certificates.client_key)),
    )
    with serving(etcd, *flags) as served:
        eventually(lambda: served.get("/ready")["etcd"] == "connected", "connected")
        assert served.stop() == 0
    with serving(etcd, *flags[:2]) as refused:
        eventually(lambda: "not following etcd" in "".join(refused.lines), "refused")
        assert refused.get("/ready")["etcd"] == "disconnected"
        assert refused.stop() == 0
