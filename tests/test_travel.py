"""What is public goes to other processes whole, or says why it does not."""

from __future__ import annotations

import copy
import dataclasses
import enum
import importlib
import inspect
import multiprocessing
import pickle
import pkgutil
import re
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import kvcache
import pydantic
import pytest
from kvcache import _core
from kvcache._frozen import FrozenMapping
from kvcache.config import DiscoveryConfig, KvEventsConfig, StreamConfig
from kvcache.discovery.config import EtcdConfig
from kvcache.discovery.errors import CompactedError
from kvcache.registry.model import Load, Registration
from kvcache.routing.base import Candidates
from kvcache.routing.slo_aware import SloAware
from kvcache.rpc.errors import CallError, ErrorCode
from kvcache.server.client import Client
from kvcache.service import Service
from kvcache.stream_log import StreamLog
from kvcache.testing import BlockCache, Faults, SimulatedEngine, SimulatedFleet

DEADLINE_S = 30.0
PROMPT = [1, 2, 3, 4, 5]
FAULTS = [kvcache.ConfigFault("streams[2].endpoint", "no"), kvcache.ConfigFault("", "nothing")]
STREAM = {
    "instance_name": "a:1",
    "endpoint": "tcp://127.0.0.1:1",
    "replay_endpoint": "tcp://127.0.0.1:2",
}
SPEC = kvcache.StreamSpec(
    **STREAM, dp_rank=3, block_size=16, topic="t", hash_seed=7, identity="incarnation x"
)
# Rooms of the service's own: what they have besides exceptions, enums and plain records is handed to nobody.
INNER = (
    "_lazy",
    "_process",
    "_stays",
    "cli",
    "demo",
    "discovery",
    "metrics",
    "protobuf_table",
    "rpc",
    "server",
)


def conversation() -> kvcache.Conversation:
    grown = kvcache.Conversation(2, hash_seed=9)
    grown.extend(PROMPT)
    return grown


def matches() -> kvcache.Matches:
    """Of a followed stream without a view, and of streams with one."""
    index = kvcache.PrefixIndex(2)
    index.store(("a", 1), [1, 2], PROMPT[:4])
    index.store("b", [1], PROMPT[:2])
    index.store("b", [1], tier="cpu")
    index.remove("b", [1])
    return index.query(PROMPT)


def unsynchronized() -> kvcache.Matches:
    with kvcache._core.Directory([SPEC]) as directory:
        return directory.query(PROMPT)


def decision(policy: kvcache.Policy | None = None) -> kvcache.Decision:
    registry = kvcache.Registry()
    for kind in (kvcache.InstanceType.PREFILL, kvcache.InstanceType.DECODE):
        name = f"{kind.name}:1"
        registry.put(f"XLLM:{kind.name}:{name}", Registration(name, kind), 1)
        registry.put_load(name, Load(3, 0.5), 1)
    late = Registration("late:1", kvcache.InstanceType.PREFILL)
    registry.put("XLLM:PREFILL:late:1", late, 2)
    index = kvcache.PrefixIndex(2)
    index.store("PREFILL:1", [1], PROMPT[:2])
    router = kvcache.Router(index, registry, policy or kvcache.CacheAware())
    return router.route(PROMPT, "r1", explain=True)


def candidates() -> Candidates:
    return decision()._candidates


def costs() -> _core.CandidateCosts:
    return _core.CandidateCosts(
        [[0, 1], [], [2]], [0.5, 1.0, 2.0], miss_weight=0.25, host_hit_weight=0.75
    )


def simulated_cache() -> BlockCache:
    cache = BlockCache(block_size=2, device_blocks=8, host_blocks=4)
    cache.prefill(PROMPT)
    return cache


SAMPLES: dict[Any, Callable[[], Any]] = {
    kvcache.BlockKeys: lambda: kvcache.block_keys(PROMPT, 2, 7),
    kvcache.ConfigError: lambda: kvcache.ConfigError(FAULTS),
    kvcache.Conversation: conversation,
    kvcache.Decision: decision,
    kvcache.Match: lambda: matches()[0],
    kvcache.Matches: matches,
    kvcache.NoInstanceError: lambda: kvcache.NoInstanceError({"a:1": "it is SUSPECT"}),
    kvcache.RequestError: lambda: kvcache.RequestError("invalid_json", "no JSON"),
    kvcache.StreamSpec: lambda: SPEC,
    BlockCache: simulated_cache,
    CallError: lambda: CallError(ErrorCode.OVERCROWDED, "too many"),
    Candidates: candidates,
    CompactedError: lambda: CompactedError(41),
    EtcdConfig: lambda: EtcdConfig(endpoints=("127.0.0.1:2379",)),
    DiscoveryConfig: lambda: DiscoveryConfig(topic="xllm-kv"),
    FrozenMapping: lambda: FrozenMapping({"a": 1}),
    KvEventsConfig: lambda: KvEventsConfig.from_dict({"streams": [STREAM]}),
    StreamConfig: lambda: StreamConfig(**STREAM),
    _core.CandidateCosts: costs,
}

# What has threads, sockets, a lock or a native index of its own.
STAY: dict[Any, Callable[[], Any]] = {
    kvcache.CacheAware: kvcache.CacheAware,
    kvcache.Directory: lambda: kvcache.Directory(KvEventsConfig.from_dict({"streams": [STREAM]})),
    kvcache.PrefixIndex: kvcache.PrefixIndex,
    kvcache.Registry: kvcache.Registry,
    kvcache.RoundRobin: kvcache.RoundRobin,
    kvcache.Router: lambda: kvcache.Router(None, kvcache.Registry()),
    Client: lambda: Client("http://127.0.0.1:1"),
    Faults: Faults,
    Service: lambda: Service(None),
    SimulatedEngine: lambda: SimulatedEngine("a"),
    SimulatedFleet: lambda: SimulatedFleet([]),
    SloAware: SloAware,
    StreamLog: lambda: StreamLog(_core.Directory([]).stream_journal()),
    _core.Directory: lambda: _core.Directory([]),
    _core.StreamJournal: lambda: _core.Directory([]).stream_journal(),
}

# Parts of what stays, which make no sense elsewhere and which nobody is handed.
PARTS = {
    *("Accounts", "Ends", "HealthProbe", "Inflight", "Loads", "Publisher", "Rotation"),
    *("Shadow", "SnapshotCache", "Told"),
}


def public() -> dict[str, tuple[str, Any]]:
    """Every name of every `__all__`, with the module that gives it."""
    found = {}
    for module in pkgutil.walk_packages(kvcache.__path__, "kvcache."):
        if module.name != "kvcache.__main__":
            loaded = importlib.import_module(module.name)
            for name in getattr(loaded, "__all__", ()):
                found[f"{module.name}.{name}"] = (module.name, getattr(loaded, name))
    for name in kvcache.__all__:
        found[f"kvcache.{name}"] = ("kvcache", getattr(kvcache, name))
    return found


PUBLIC = public()
CLASSES = {
    id(value): (name, module, value)
    for name, (module, value) in PUBLIC.items()
    if inspect.isclass(value) and value.__module__.startswith("kvcache.")
}


def placeholder(name: str, annotation: object) -> object:
    return FrozenMapping({name: 1}) if "Mapping" in str(annotation) else f"the {name}"


def sample(kind: Any) -> Any:
    """One of a class, by the table or as its fields say; `None` where nobody knows one."""
    if kind in SAMPLES:
        return SAMPLES[kind]()
    if issubclass(kind, enum.Enum):
        return list(kind)[-1]
    if issubclass(kind, BaseException) and not has_own_arguments(kind):
        return kind("one sentence")
    if dataclasses.is_dataclass(kind):
        given = [field for field in dataclasses.fields(kind) if field.init]
        return kind(**{field.name: placeholder(field.name, field.type) for field in given})
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        hints = inspect.get_annotations(kind)
        return kind(*(placeholder(name, hints[name]) for name in kind._fields))
    return None


def has_own_arguments(kind: Any) -> bool:
    ours = [base for base in kind.__mro__ if base.__module__.startswith("kvcache.")]
    return any("__init__" in vars(base) for base in ours)


def is_shape(kind: Any) -> bool:
    return typing.is_typeddict(kind) or getattr(kind, "_is_protocol", False)


def is_inner(module: str) -> bool:
    return module.split(".")[1:2] != [] and module.split(".")[1] in INNER


def seen(value: Any) -> Any:  # noqa: PLR0911 - a case a line
    """What can be compared of it: all of its attributes where it does not compare by itself."""
    if isinstance(value, BaseException):
        return type(value), str(value), value.args, vars(value)
    if isinstance(value, kvcache.Decision):
        shown = {name: getattr(value, name) for name in dir(value) if not name.startswith("_")}
        return {name: seen(one) for name, one in shown.items() if name != "to_dict"}, repr(value)
    if isinstance(value, Candidates):
        return [seen(getattr(value, field.name)) for field in dataclasses.fields(value)]
    if isinstance(value, _core.CandidateCosts):
        return len(value), value.cheapest(matches())
    if isinstance(value, kvcache.Conversation):
        value.extend([6])
        return value.token_count, value.block_keys()
    if isinstance(value, kvcache.Matches):
        arrays = [getattr(value, name).tolist() for name in ARRAYS]
        return list(value), value.token_count, value.streams, value.identities, arrays
    if isinstance(value, BlockCache):
        return value.snapshot(), value.device_block_count
    return value


ARRAYS = (
    *("synchronized", "sequences", "device_hit_tokens", "host_only_hit_tokens"),
    "reusable_prefix_tokens",
)
WAYS: dict[str, Callable[[Any], Any]] = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
} | {
    f"pickle {protocol}": lambda value, protocol=protocol: pickle.loads(  # noqa: S301
        pickle.dumps(value, protocol)
    )
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1)
}
TRAVELLERS = [
    pytest.param(value, id=name)
    for name, _, value in CLASSES.values()
    if not is_shape(value) and value not in STAY and sample(value) is not None
]


def test_every_public_name_is_classified() -> None:
    """A new class needs a sample, or a sentence why it stays (see `SAMPLES` and `STAY`)."""
    unknown = [
        name
        for name, module, value in CLASSES.values()
        if not is_shape(value)
        and value not in STAY
        and sample(value) is None
        and value.__name__ not in PARTS
        and not (is_inner(module) and not issubclass(value, BaseException))
    ]
    assert unknown == []


def test_every_other_public_name_is_a_function_a_constant_or_an_alias() -> None:
    for name, (module, value) in PUBLIC.items():
        if not inspect.isclass(value) and not inspect.isroutine(value) and not is_inner(module):
            assert pickle.loads(pickle.dumps(value)) == value, name  # noqa: S301


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", TRAVELLERS)
def test_values_travel(kind: Any, way: str) -> None:
    value = sample(kind)
    arrived = WAYS[way](value)
    assert type(arrived) is kind
    assert seen(arrived) == seen(value)


@pytest.mark.parametrize("way", WAYS)
def test_exceptions_keep_what_was_added(way: str) -> None:
    error = kvcache.ConfigError(FAULTS)
    error.add_note("while starting")
    arrived = WAYS[way](error)
    assert arrived.faults == FAULTS
    assert arrived.__notes__ == ["while starting"]
    timeout = WAYS[way](kvcache.WaitTimeoutError("late"))
    assert isinstance(timeout, TimeoutError)
    assert str(timeout) == "late"


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("policy", [kvcache.RoundRobin, kvcache.CacheAware, SloAware])
def test_decisions_of_every_policy_travel(policy: Callable[[], Any], way: str) -> None:
    made = decision(policy())
    arrived = WAYS[way](made)
    assert arrived.to_dict() == made.to_dict()
    assert seen(arrived) == seen(made)
    assert seen(WAYS[way](arrived)) == seen(made)


@pytest.mark.parametrize("way", WAYS)
def test_answers_of_unsynchronized_streams_travel(way: str) -> None:
    made = unsynchronized()
    assert seen(WAYS[way](made)) == seen(made)
    (match,) = made
    assert WAYS[way](match) == match
    assert match.identity == "incarnation x"
    assert match.error


def test_equal_values_are_equal() -> None:
    for make in (SAMPLES[kvcache.Match], SAMPLES[kvcache.BlockKeys]):
        assert make() == make()
        assert hash(make()) == hash(make())
    assert matches() == matches()
    assert matches() != unsynchronized()
    assert matches()[0] != matches()[1]
    assert kvcache.block_keys(PROMPT, 2) != kvcache.block_keys(PROMPT, 4)
    assert kvcache.StreamSpec(**STREAM) == kvcache.StreamSpec(**STREAM)
    assert hash(kvcache.StreamSpec(**STREAM)) == hash(kvcache.StreamSpec(**STREAM))
    assert kvcache.StreamSpec(**STREAM) != SPEC
    assert SPEC != "another type"


def test_copies_of_a_conversation_go_their_own_ways() -> None:
    first = conversation()
    for way in WAYS.values():
        branch = way(first)
        branch.extend([9, 9, 9])
        assert branch.token_count == len(PROMPT) + 3
        assert first.token_count == len(PROMPT)
        assert branch.block_keys() == kvcache.block_keys([*PROMPT, 9, 9, 9], 2, 9)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", [pytest.param(kind, id=kind.__name__) for kind in STAY])
def test_what_lives_here_says_so(kind: Any, way: str) -> None:
    name = re.escape(kind.__name__)
    value = STAY[kind]()
    with pytest.raises(TypeError, match=f"^an? {name} cannot be pickled or copied, as .+: .+"):
        WAYS[way](value)
    if hasattr(value, "close"):
        value.close()


def test_no_value_holds_what_does_not_travel() -> None:
    package = Path(kvcache.__file__).parent
    named = [
        path.name for path in package.rglob("*.py") if "import MappingProxyType" in path.read_text()
    ]
    assert named == []


def refuse(kind: type[kvcache.KvCacheError]) -> NoReturn:
    error = SAMPLES[kind]()
    raise error


@pytest.mark.parametrize(
    "kind", [kvcache.ConfigError, kvcache.RequestError, kvcache.NoInstanceError]
)
def test_a_pool_gives_the_error_back(kind: type[kvcache.KvCacheError]) -> None:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        answer = pool.map_async(refuse, [kind])
        with pytest.raises(kind) as caught:
            answer.get(DEADLINE_S)
    expected = SAMPLES[kind]()
    assert str(caught.value) == str(expected)
    assert vars(caught.value).keys() >= vars(expected).keys()
    for name, value in vars(expected).items():
        assert getattr(caught.value, name) == value


def test_configurations_are_values() -> None:
    for kind in (DiscoveryConfig, KvEventsConfig, StreamConfig):
        assert issubclass(kind, pydantic.BaseModel)
        assert kind in SAMPLES
