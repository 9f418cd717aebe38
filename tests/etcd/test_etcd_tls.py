"""TLS, with and without a certificate of the client's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from kvcache.discovery.errors import EtcdUnavailableError
from kvcache.exceptions import ConfigError
from mirror_recorder import client_of, following, key, run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from etcd_server import Certificates, Etcd


def test_the_server_is_verified(new_etcd: Callable[..., Etcd], certificates: Certificates) -> None:
    async def test() -> None:
        etcd = new_etcd(certificates=certificates).start()
        async with (
            client_of(etcd.endpoint, ca_path=certificates.ca) as client,
            following(etcd.endpoint, ca_path=certificates.ca) as one,
        ):
            await client.put(key("a"), b"1")
            await one.sees({key("a"): b"1"})
        # Another authority, and no TLS at all.
        for options, reason in (
            ({"ca_path": certificates.client_cert}, "CERTIFICATE_VERIFY_FAILED"),
            ({}, etcd.endpoint),
        ):
            async with client_of(etcd.endpoint, **options) as client:
                with pytest.raises(EtcdUnavailableError, match=reason):
                    await client.range(key("a"))

    run(test())


def test_the_client_shows_a_certificate(
    new_etcd: Callable[..., Etcd], certificates: Certificates
) -> None:
    async def test() -> None:
        args = ("--client-cert-auth", f"--trusted-ca-file={certificates.ca}")
        etcd = new_etcd(certificates=certificates, args=args).start()
        shown = {
            "ca_path": certificates.ca,
            "cert_path": certificates.client_cert,
            "key_path": certificates.client_key,
        }
        async with (
            client_of(etcd.endpoint, **shown) as client,
            following(etcd.endpoint, **shown) as one,
        ):
            await client.put(key("a"), b"1")
            await one.sees({key("a"): b"1"})
        async with client_of(etcd.endpoint, ca_path=certificates.ca) as client:
            with pytest.raises(EtcdUnavailableError):
                await client.range(key("a"))

    run(test())


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        client_of("127.0.0.1:2379", ca_path=tmp_path / "none.pem")
    assert "none.pem" in str(refused.value)
