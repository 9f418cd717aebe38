"""Real etcd processes on free loopback ports; each is signalled and ended by its own pid."""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Self

DEADLINE_S = 20.0


def program(name: str) -> str:
    path = shutil.which(name)
    assert path, f"{name} is missing: apt-get install etcd-server etcd-client openssl"
    return path


_given: set[int] = set()


def free_port() -> int:
    """Returns a free port, and each port once: its server listens only some time later.

    It lies below the ephemeral ports, from which a reconnecting client could connect to itself.
    """
    while True:
        port = random.randrange(20_000, 32_000)
        if port in _given:
            continue
        _given.add(port)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


@dataclass(frozen=True)
class Certificates:
    """An authority, and what it signed for a server at 127.0.0.1 and for a client."""

    ca: Path
    server_cert: Path
    server_key: Path
    client_cert: Path
    client_key: Path


def make_certificates(folder: Path) -> Certificates:
    def openssl(*args: str) -> None:
        subprocess.run([program("openssl"), *args], check=True, capture_output=True, cwd=folder)

    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2")
    openssl("req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=ca")
    for name in ("server", "client"):
        request = ("-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        openssl("req", *key, *request)
        (folder / f"{name}.ext").write_text("subjectAltName=IP:127.0.0.1\n")
        authority = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2")
        files = ("-in", f"{name}.csr", "-out", f"{name}.pem", "-extfile", f"{name}.ext")
        openssl("x509", "-req", *authority, *files)
    return Certificates(
        folder / "ca.pem",
        folder / "server.pem",
        folder / "server.key",
        folder / "client.pem",
        folder / "client.key",
    )


class Etcd:
    """One member. Its ports and its data stay the same when it is started again."""

    def __init__(
        self,
        folder: Path,
        name: str = "one",
        *,
        args: tuple[str, ...] = (),
        certificates: Certificates | None = None,
    ) -> None:
        self.name = name
        self.port = free_port()
        self.peer_url = f"http://127.0.0.1:{free_port()}"
        self.initial_cluster = f"{name}={self.peer_url}"
        self.user = ""
        self._health_url = f"http://127.0.0.1:{free_port()}"
        self._data = folder / name
        self._log = folder / f"{name}.log"
        self._args = args
        self._certificates = certificates
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self, *, wait: bool = True) -> Self:
        url = f"{'http' if self._certificates is None else 'https'}://{self.endpoint}"
        options = {
            "name": self.name,
            "data-dir": str(self._data),
            "listen-client-urls": url,
            "advertise-client-urls": url,
            "listen-peer-urls": self.peer_url,
            "initial-advertise-peer-urls": self.peer_url,
            "initial-cluster": self.initial_cluster,
            "listen-metrics-urls": self._health_url,
            "heartbeat-interval": "50",
            "election-timeout": "250",
            "bcrypt-cost": "4",
            "logger": "zap",
        }
        if self._certificates is not None:
            options["cert-file"] = str(self._certificates.server_cert)
            options["key-file"] = str(self._certificates.server_key)
        words = [f"--{key}={value}" for key, value in options.items()]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [program("etcd"), *words, *self._args], stdout=log, stderr=log
            )
        if wait:
            self.wait_healthy()
        return self

    def wait_healthy(self) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not self._healthy():
            assert time.monotonic() < deadline, self._log.read_text()[-2000:]
            assert self._running().poll() is None, self._log.read_text()[-2000:]
            time.sleep(0.02)

    def _healthy(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self._health_url}/health", timeout=2) as answer:  # noqa: S310
                return b'"true"' in answer.read()
        except OSError:
            return False

    def _running(self) -> subprocess.Popen[bytes]:
        assert self._process is not None
        return self._process

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(DEADLINE_S)
            self._process = None

    def wipe(self) -> None:
        """Forgets all data; the same member of the same cluster when it is started again."""
        assert self._process is None
        shutil.rmtree(self._data)

    def pause(self) -> None:
        """Returns when every thread has stopped: some may run on for a while."""
        self._running().send_signal(signal.SIGSTOP)
        threads = Path(f"/proc/{self._running().pid}/task")
        deadline = time.monotonic() + DEADLINE_S
        while any("\nState:\tT" not in (one / "status").read_text() for one in threads.iterdir()):
            assert time.monotonic() < deadline, "etcd does not stop"
            time.sleep(0.001)

    def resume(self) -> None:
        self._running().send_signal(signal.SIGCONT)

    def ctl(self, *args: str) -> str:
        """Runs etcdctl, past any proxy."""
        words = ["--endpoints", self.endpoint, *(("--user", self.user) if self.user else ()), *args]
        done = subprocess.run(
            [program("etcdctl"), *words],
            env=os.environ | {"ETCDCTL_API": "3"},
            check=False,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
        )
        assert done.returncode == 0, (args, done.stderr)
        return done.stdout

    def add_user(self, name: str, password: str, key: str, range_end: str) -> None:
        """A user that may read and write [key, range_end)."""
        self.ctl("user", "add", f"{name}:{password}")
        self.ctl("role", "add", name)
        self.ctl("role", "grant-permission", name, "readwrite", key, range_end)
        self.ctl("user", "grant-role", name, name)

    def enable_auth(self) -> None:
        self.ctl("user", "add", "root:root-secret")
        self.ctl("user", "grant-role", "root", "root")
        self.ctl("auth", "enable")
        self.user = "root:root-secret"


class Cluster:
    """Three members of one cluster."""

    def __init__(self, folder: Path) -> None:
        self.members = [Etcd(folder, name) for name in ("a", "b", "c")]
        together = ",".join(f"{one.name}={one.peer_url}" for one in self.members)
        for one in self.members:
            one.initial_cluster = together

    def start(self) -> Self:
        for one in self.members:
            one.start(wait=False)
        for one in self.members:
            one.wait_healthy()
        return self

    def kill(self) -> None:
        for one in self.members:
            one.kill()

    def at(self, endpoint: str) -> Etcd:
        return next(one for one in self.members if one.endpoint == endpoint)
