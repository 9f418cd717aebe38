"""The Rust core. Everything here is re-exported by `kvcache`; import it from there."""

from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import ClassVar, Self, final, overload

from typing_extensions import disjoint_base

from kvcache.types import StreamName, StreamStatus, StreamTransition, Tier, TokenIds

__all__ = [
    "MAX_REQUEST_ID_CHARS",
    "BlockKeys",
    "CandidateCosts",
    "Conversation",
    "Directory",
    "Match",
    "Matches",
    "PrefixIndex",
    "StreamJournal",
    "StreamSpec",
    "__version__",
    "_block_keys",
    "_candidate_costs",
    "_conversation",
    "_match",
    "_matches",
    "block_keys",
    "parse_route_request",
    "refuse_encoding",
    "token_count",
]

__version__: str
MAX_REQUEST_ID_CHARS: int

@final
class StreamSpec:
    """One rank of one instance, to be followed. Endpoints are `tcp://host:port`."""

    def __new__(
        cls,
        *,
        instance_name: str,
        endpoint: str,
        replay_endpoint: str,
        dp_rank: int = 0,
        block_size: int = 128,
        topic: str = "",
        hash_seed: int = 1024,
        identity: str | None = None,
    ) -> Self: ...
    @property
    def instance_name(self) -> str: ...
    @property
    def dp_rank(self) -> int: ...
    @property
    def block_size(self) -> int: ...
    @property
    def endpoint(self) -> str: ...
    @property
    def replay_endpoint(self) -> str: ...
    @property
    def topic(self) -> str: ...
    @property
    def hash_seed(self) -> int: ...
    @property
    def identity(self) -> str | None:
        """Which process this is; streams with another identity are other streams (see `Directory.set_streams`)."""
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __getnewargs_ex__(self) -> tuple[tuple[()], dict[str, object]]: ...

@final
class Match:
    """What one stream holds of a prompt (spec: query). Token counts are multiples of the block size.

    A value: it compares by all that it shows, and can be pickled and copied.
    """

    @property
    def instance_name(self) -> str: ...
    @property
    def dp_rank(self) -> int: ...
    @property
    def identity(self) -> str | None:
        """Which process the stream was followed as (see `Directory.set_streams`); `None` for static streams."""
    @property
    def synchronized(self) -> bool: ...
    @property
    def sequence(self) -> int | None: ...
    @property
    def device_hit_tokens(self) -> int: ...
    @property
    def host_only_hit_tokens(self) -> int: ...
    @property
    def reusable_prefix_tokens(self) -> int: ...
    @property
    def device_blocks(self) -> int: ...
    @property
    def host_blocks(self) -> int: ...
    @property
    def error(self) -> str: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class Matches(Sequence[Match]):
    """One `Match` a stream, by instance name, then rank; built when asked for.

    The same without an object a stream: arrays of one element a stream in the same order, read-only one-dimensional
    memoryviews, which `numpy.asarray` takes without a copy. They keep what they show for as long as they are held.

    Can be pickled and copied; equal when all matches are. Not hashable: how many blocks a stream has goes on changing.
    """

    @property
    def token_count(self) -> int:
        """Tokens of the prompt that was asked about; of `BlockKeys` those of its full blocks."""
    @property
    def streams(self) -> tuple[tuple[str, int], ...]:
        """`(instance_name, dp_rank)` of each stream.

        The same object from one answer of an index to the next while the streams are the same, so that `is` tells
        whether positions still mean what they did.
        """
    @property
    def identities(self) -> tuple[str | None, ...]:
        """Which process each stream was followed as; `None` for static streams. The same object while they are the same."""
    @property
    def synchronized(self) -> memoryview[bool]:
        """Whether each stream has a view that can be believed (format `?`, numpy bool)."""
    @property
    def sequences(self) -> memoryview[int]:
        """The last sequence that each view includes; 2^64-1 where there is none (format `Q`, numpy uint64)."""
    @property
    def device_hit_tokens(self) -> memoryview[int]:
        """Tokens of walked blocks with a Device copy (format `q`, numpy int64)."""
    @property
    def host_only_hit_tokens(self) -> memoryview[int]:
        """Tokens of walked blocks with a Host copy only (format `q`, numpy int64)."""
    @property
    def reusable_prefix_tokens(self) -> memoryview[int]:
        """Sum of both (format `q`, numpy int64)."""
    def __len__(self) -> int: ...
    @overload
    def __getitem__(self, index: int, /) -> Match: ...
    @overload
    def __getitem__(self, index: slice, /) -> list[Match]: ...
    def __iter__(self) -> Iterator[Match]: ...
    def __eq__(self, other: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]

@final
class CandidateCosts:
    """Which candidates are the cheapest for a prompt: what a policy asks instead of computing for each in Python.

    A candidate is a group of streams that serve as one. It costs `miss_weight * (1 - ratio) + base`, in f64 and in this
    order, where `ratio` is the lowest of its streams' `(device + host_hit_weight * host_only) / prompt tokens`, within 0
    to 1; 0 without streams.
    """

    def __new__(
        cls,
        places: Sequence[Sequence[int]],
        base_costs: Sequence[float],
        *,
        miss_weight: float,
        host_hit_weight: float,
    ) -> Self:
        """`places` are where each candidate's streams are in `Matches.streams`. Raises `ValueError` for lengths that differ."""
    def with_base_costs(self, base_costs: Sequence[float]) -> Self:
        """The same candidates with other base costs. Raises `ValueError` unless there is one for each."""
    def cheapest(self, matches: Matches) -> tuple[list[int], list[int], int]:
        """Which cost the least, in order, and what is reused, in tokens: by each of those, and by whoever reuses the most.

        Several when they cost exactly the same. Of a candidate's streams the one with the fewest tokens counts.
        """
    def __len__(self) -> int: ...

@final
class BlockKeys:
    """A prompt's full blocks, hashed once (spec: content keys)."""

    @property
    def block_size(self) -> int: ...
    @property
    def hash_seed(self) -> int: ...
    @property
    def block_hashes(self) -> bytes:
        """16 little-endian bytes a block: XXH3-128 of its tokens."""
    @property
    def content_keys(self) -> bytes:
        """16 little-endian bytes a block: XXH3-128 of the parent's content key and the block hash."""
    def __len__(self) -> int: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class Conversation:
    """A prompt that grows: what a next turn appends is hashed, and nothing twice.

    Can be asked about wherever `BlockKeys` can. Keeps 32 bytes a full block, and the tokens of the last, partial one.
    Thread-safe: a query sees the tokens before an `extend` or after it, never a part of them; two threads that extend
    one conversation do so one after the other, in an order that is up to them.

    Can be pickled and copied: a copy goes its own way, as a branch of the dialogue does.
    """

    def __new__(cls, block_size: int = 128, *, hash_seed: int = 1024) -> Self:
        """Without tokens. Raises `ValueError` for a block size of 0."""
    @property
    def block_size(self) -> int: ...
    @property
    def hash_seed(self) -> int: ...
    @property
    def token_count(self) -> int:
        """Tokens so far, those of the last, partial block included."""
    def extend(self, token_ids: TokenIds) -> None:
        """Appends tokens and hashes the blocks that they fill. Raises `TokenIdsError`, and appends nothing then."""
    def truncate(self, token_count: int) -> int:
        """Forgets the tokens from `token_count` on, for a history that was edited.

        Returns how many are left, from where to `extend` again: fewer than asked for, by less than a block, when the
        cut is inside a full block, as its tokens are not kept.
        """
    def block_keys(self) -> BlockKeys:
        """The keys of the full blocks so far, equal to `block_keys` of all tokens; later turns do not change them."""

# What pickled and copied values are made of.

def _block_keys(block_size: int, hash_seed: int, block_hashes: bytes) -> BlockKeys: ...
def _candidate_costs(
    places: Sequence[Sequence[int]],
    base_costs: Sequence[float],
    miss_weight: float,
    host_hit_weight: float,
) -> CandidateCosts: ...
def _conversation(keys: BlockKeys, tail: Sequence[int]) -> Conversation: ...
def _match(shown: tuple[object, ...]) -> Match: ...
def _matches(token_count: int, shown: Sequence[tuple[object, ...]]) -> Matches: ...
def parse_route_request(body: bytes) -> tuple[bytes, str | None, bool]:
    """The token ids (little-endian uint32), the request id and whether to explain, of a request body. Raises `RequestError`."""

def refuse_encoding(body: bytes) -> None:
    """Raises `RequestError` for a body that is compressed or no plain UTF-8, by its first bytes."""

def block_keys(token_ids: TokenIds, block_size: int = 128, hash_seed: int = 1024) -> BlockKeys:
    """Hashes a prompt's full blocks. Raises `TokenIdsError`; `ValueError` for a block size of 0."""

def token_count(token_ids: TokenIds | BlockKeys | Conversation) -> int:
    """Tokens of a prompt as a query takes it; of `BlockKeys` those of its full blocks. Raises `TokenIdsError`."""

@disjoint_base
class PrefixIndex:
    """The index alone, without network. It can be neither pickled nor copied: `TypeError` says what to do instead.

    Thread-safe; queries never wait for writers. They release the GIL, once, from 4,096 tokens in a buffer or 4,096 blocks
    on, and from 131,072 tokens in a list on; shorter ones keep it, as to release it would cost other threads more.
    """

    def __new__(
        cls, block_size: int = 128, *, hash_seed: int = 1024, max_blocks_per_stream: int = 262144
    ) -> Self: ...
    @property
    def block_size(self) -> int: ...
    @property
    def hash_seed(self) -> int: ...
    def store(
        self,
        stream: StreamName,
        block_hashes: Sequence[int],
        token_ids: TokenIds | None = None,
        parent: int | None = None,
        tier: Tier = "gpu",
    ) -> None:
        """Stores consecutive blocks; without token ids, copies of known ones. Raises `StoreError`."""
    def remove(self, stream: StreamName, block_hashes: Sequence[int], tier: Tier = "gpu") -> None:
        """Takes the copies of one tier away. Unknown hashes and absent copies are harmless."""
    def clear(self, stream: StreamName) -> None:
        """Forgets every block of the stream."""
    def discard_stream(self, stream: StreamName) -> None:
        """Takes the stream out of the index and of answers."""
    def query(self, token_ids: TokenIds | BlockKeys | Conversation) -> Matches:
        """Who holds how much of a prompt. Raises `TokenIdsError`; `ValueError` for keys of another block size or seed."""

@final
class StreamJournal:
    """Reads a directory's journal without holding the directory."""

    def wait(self) -> tuple[list[StreamTransition], int] | None:
        """Waits for the next transitions, and how many older ones were dropped.

        None when the directory is closed and everything was read.
        """
    def close(self) -> None:
        """Ends the journal: `wait` returns what is left, and then None."""

@disjoint_base
class Directory:
    """Follows streams and answers queries. Subclassed by `kvcache.Directory`, which takes a configuration.

    It serves the process that started it: in a forked child every method raises `KvCacheError`, `closed` is true, and
    `close` does nothing.
    """

    def __new__(
        cls,
        streams: Sequence[StreamSpec],
        *,
        max_streams: int = 128,
        max_blocks_per_stream: int = 262144,
        max_message_bytes: int = 8388608,
        max_buffered_bytes: int = 16777216,
        replay_timeout_ms: int = 2000,
        resync_interval_ms: int = 30000,
    ) -> Self: ...
    def query(self, token_ids: TokenIds | BlockKeys | Conversation) -> Matches:
        """Who holds how much of a prompt.

        Raises `TokenIdsError`, `ClosedError`; `ValueError` for keys that no stream names its blocks by.
        """
    def query_json(self, body: bytes) -> bytes:
        """Answers a request body `{"token_ids":[…]}` with the response body. Raises `RequestError`."""
    def set_streams(self, streams: Sequence[StreamSpec]) -> tuple[int, int, int]:
        """Follows exactly `streams` from now on; returns how many were added, retired and kept.

        A stream that is followed with an equal spec, identity included, is not touched. Any other gives no hit from this
        instant, and none before the first snapshot of what replaces it. Raises `ClosedError`; `ValueError` for too many
        streams, or one twice, and changes nothing then.
        """
    def streams(self) -> list[StreamStatus]: ...
    def wait_synchronized(self, timeout: float | None = None) -> None:
        """Blocks until every stream is synchronized.

        Raises `WaitTimeoutError` after `timeout` seconds. None and infinity wait for ever. Raises
        `TypeError` and `ValueError` for what is no number of seconds from 0.
        """
    def stream_journal(self) -> StreamJournal:
        """Gives the journal of lost and returned streams, which does not keep it alive."""
    @property
    def closed(self) -> bool: ...
    def close(self) -> None:
        """Stops every task and thread; under a second. A second call does nothing."""
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None: ...
