"""Users, passwords, tokens that expire, and permission for a range only."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import pytest
from kvcache.discovery.config import EtcdConfig
from kvcache.discovery.errors import EtcdAuthError, EtcdTokenError
from kvcache.exceptions import ConfigError
from mirror_recorder import KEY, RANGE_END, client_of, eventually, following, key, run
from tcp_proxy import TcpProxy

if TYPE_CHECKING:
    from collections.abc import Callable

    from etcd_server import Etcd

SECRET = "engines-secret"  # noqa: S105
ENGINES: dict[str, Any] = {"username": "engines", "password": SECRET}


@pytest.fixture
def guarded(new_etcd: Callable[..., Etcd]) -> Etcd:
    """The user `engines` may read and write below /ns/; tokens last for a second without use."""
    etcd = new_etcd(args=("--auth-token-ttl=1",)).start()
    etcd.add_user("engines", SECRET, "/ns/", "/ns0")
    etcd.enable_auth()
    return etcd


def test_a_user_within_its_range(guarded: Etcd) -> None:
    async def test() -> None:
        async with client_of(guarded.endpoint, **ENGINES) as client:
            await client.put(key("a"), b"1")
            assert (await client.range(KEY, RANGE_END)).count == 1
            lease = await client.lease_grant(5)
            assert await client.lease_keepalive(lease) == 5
            assert client.counters.logins_total == 1
            for refused in (
                client.put(b"/other", b"1"),
                client.range(b"/", b"0"),
                client.range(KEY, b"\0"),
            ):
                with pytest.raises(EtcdAuthError, match="grant it a role"):
                    await refused
            assert client.counters.logins_total == 1

    run(test())


def test_many_requests_share_one_login(guarded: Etcd) -> None:
    async def test() -> None:
        async with client_of(guarded.endpoint, **ENGINES) as client:
            await asyncio.gather(*(client.put(key(str(number)), b"1") for number in range(20)))
            assert client.counters.logins_total == 1
            guarded.ctl("auth", "disable")
            guarded.ctl("auth", "enable")
            await asyncio.gather(*(client.put(key(str(number)), b"2") for number in range(20)))
            assert client.counters.logins_total == 2

    run(test())


@pytest.mark.parametrize("watching", [False, True])
def test_a_wrong_password_shows_nowhere(
    guarded: Etcd, watching: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)

    async def test() -> None:
        wrong = {"username": "engines", "password": "wrong-secret"}
        if watching:
            async with following(guarded.endpoint, wait=False, **wrong) as one:
                await eventually(lambda: one.mirror.client_counters.logins_total >= 2, "attempts")
                error = one.mirror.status.error
                assert not one.mirror.status.connected
        else:
            async with client_of(guarded.endpoint, **wrong) as client:
                with pytest.raises(EtcdAuthError) as refused:
                    await client.range(KEY)
                error = str(refused.value) + repr(refused.value.__cause__)
                assert "wrong-secret" not in repr(client._session.config)
        assert "refuses the user name or the password" in error
        assert "secret" not in error
        assert "wrong-secret" not in caplog.text

    run(test())


def test_without_a_user(guarded: Etcd) -> None:
    async def test() -> None:
        async with client_of(guarded.endpoint) as client:
            with pytest.raises(EtcdTokenError, match="wants a user name and a password"):
                await client.range(KEY)
            with pytest.raises(EtcdAuthError):
                async with client.watch(KEY, RANGE_END, 1):
                    pass

    run(test())


def test_a_user_where_etcd_has_none(etcd: Etcd) -> None:
    async def test() -> None:
        async with following(etcd.endpoint, **ENGINES) as one:
            assert one.mirror.client_counters.logins_total == 1
            etcd.add_user("engines", SECRET, "/ns/", "/ns0")
            etcd.enable_auth()
            etcd.ctl("put", key("a").decode(), "1")
            await one.sees({key("a"): b"1"})
            await eventually(lambda: one.mirror.client_counters.logins_total == 2, "a login")
            await one.connected()

    run(test())


def test_a_token_expires_while_a_watch_runs(guarded: Etcd) -> None:
    async def test() -> None:
        async with TcpProxy(guarded.endpoint) as proxy:
            async with (
                client_of(guarded.endpoint, **ENGINES) as client,
                client.watch(KEY, RANGE_END, 1) as watch,
            ):
                await expired(client)
                guarded.ctl("put", key("x").decode(), "1")
                assert (await anext(watch)).events[0].kv.key == key("x")
            async with following(proxy.endpoint, **ENGINES) as one:
                # Twice: the probes keep a token alive, so the watch has to be the first to need it.
                for number in range(2):
                    session = one.client._session
                    session._token = "expired"  # noqa: S105
                    proxy.cut()
                    guarded.ctl("put", key("y").decode(), str(number))
                    await one.sees({key("x"): b"1", key("y"): str(number).encode()})
                    await one.connected()
                assert one.mirror.client_counters.logins_total == 3

    run(test())


async def expired(client: Any) -> None:
    """Waits until etcd does not know the token any more: asking renews it, so seldom."""
    logins = client.counters.logins_total
    deadline = asyncio.get_running_loop().time() + 10
    while client.counters.logins_total == logins:
        await client.range(key("x"))
        if client.counters.logins_total == logins:
            assert asyncio.get_running_loop().time() < deadline
            await asyncio.sleep(2)


def test_a_watch_is_denied_with_an_expired_token(guarded: Etcd) -> None:
    async def test() -> None:
        async with client_of(guarded.endpoint, **ENGINES) as client:
            await client.range(KEY)
            client._session._token = "expired"  # noqa: S105
            with pytest.raises(EtcdAuthError):
                async with client.watch(KEY, RANGE_END, 1):
                    pass
            async with client.watch(KEY, RANGE_END, 1) as watch:
                await client.put(key("a"), b"1")
                assert (await anext(watch)).events[0].kv.value == b"1"

    run(test())


def test_a_member_that_was_started_again_knows_no_token(guarded: Etcd) -> None:
    async def test() -> None:
        async with following(guarded.endpoint, **ENGINES) as one:
            guarded.kill()
            await asyncio.to_thread(guarded.start)
            guarded.ctl("put", key("a").decode(), "1")
            await one.sees({key("a"): b"1"})
            await one.connected()

    run(test())


def test_permission_that_is_taken_away_is_no_empty_list(guarded: Etcd) -> None:
    async def test() -> None:
        guarded.ctl("put", key("a").decode(), "1")
        async with following(guarded.endpoint, **ENGINES) as one:
            guarded.ctl("role", "revoke-permission", "engines", "/ns/", "/ns0")
            await one.disconnected()
            await eventually(lambda: "grant it a role" in one.mirror.status.error, "the reason")
            assert one.recorder.world == {key("a"): b"1"}
            guarded.ctl(
                "role", "grant-permission", "engines", "read", KEY.decode(), RANGE_END.decode()
            )
            await one.connected()
            assert [event.kind for event in one.recorder.events] == ["put"]

    run(test())


def test_half_credentials_are_refused() -> None:
    for half in ({"username": "engines"}, {"password": SECRET}):
        with pytest.raises(ConfigError) as refused:
            EtcdConfig(endpoints=("127.0.0.1:2379",), **half)
        assert SECRET not in str(refused.value)
