"""An etcd, and what it takes to start others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from etcd_server import Certificates, Cluster, Etcd, make_certificates

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture
def new_etcd(tmp_path: Path) -> Iterator[Callable[..., Etcd]]:
    """Makes an etcd that is not started; it is ended after the test."""
    made: list[Etcd] = []

    def make(**options: object) -> Etcd:
        made.append(Etcd(tmp_path, f"etcd{len(made)}", **options))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for one in made:
        one.kill()


@pytest.fixture
def etcd(new_etcd: Callable[..., Etcd]) -> Etcd:
    return new_etcd().start()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path)
    try:
        yield made.start()
    finally:
        made.kill()


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))
