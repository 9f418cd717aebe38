"""Workload W1, generated: engines that share system prompts and diverge after them.

    python bench/w1.py [--entries N] [--workers N] [--queries N] [--block-size N ...]

200 system prompts (as many again for every 15 M entries) of 2-8 k tokens, Zipf-popular, each with up to 50
continuations of 1-16 k tokens; every
sequence is stored by 1-8 workers (few mostly) in events of up to 2,048 tokens, until `--entries` (worker,
16-token block) pairs exist. Every fourth placement is later evicted, all but its shared part. Queries have
1-32 k tokens, log-uniform; 70 % begin with a part of a known sequence, the others are new.

Deterministic: the same arguments give the same bytes. Files go to `$KVCACHE_BENCH_DIR` (`target/bench`), one
a block size, and are kept from run to run.

Format, little-endian: 8 bytes `KVC-W1/1`; u64 block size, workers, entries; then arrays, each a u64 count and
its items, in this order (`workload.py` and `peers/src/workload.rs` read it):

    sequences   u64 token_ends[], u64 block_ends[], u32 tokens[], u64 local[], u64 chained[]
    stores      u32 (worker, sequence, first block, blocks)[]     only blocks new to the worker
    removes     u32 (worker, sequence, first block, blocks)[]     to be applied last first
    queries     as sequences; u64 answer_ends[], u32 (worker, leading blocks held)[]

`…_ends[i]` is where prompt i ends in the arrays that follow. Hashes are those that Dynamo and SMG publish:
`local` is XXH3-64, seed 1337, of a block's tokens as u32; `chained` is `local` for a first block, then XXH3-64,
seed 1337, of the previous `chained` and this `local`, 8 bytes each. `chained` serves as the wire hash too.
Answers come from a walk over plain dictionaries, after all stores and no remove.
"""

from __future__ import annotations

import argparse
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
import xxhash

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import BinaryIO

DEFAULT_DIRECTORY = Path(__file__).parents[1] / "target" / "bench"
MAGIC = b"KVC-W1/1"
RNG_SEED = 7
HASH_SEED = 1337
VOCABULARY = 128_000
PROMPTS = 200
CONTINUATIONS = 50
ENTRIES_OF_PROMPTS = 15_000_000
MAX_HOLDERS = 8
EVENT_TOKENS = 2048
BASE_BLOCK_TOKENS = 16
KNOWN_PREFIX_SHARE = 0.7
EVICT_EVERY = 4

Tokens = npt.NDArray[np.uint32]


class Span(NamedTuple):
    """Consecutive blocks of one sequence, in one worker."""

    worker: int
    sequence: int
    first: int
    blocks: int


class Placement(NamedTuple):
    worker: int
    sequence: int


@dataclass(frozen=True, slots=True)
class Stored:
    """A system prompt and a continuation."""

    shared_tokens: int
    tokens: Tokens


@dataclass(frozen=True, slots=True)
class Scenario:
    """Who stores what and who asks for what, before blocks and hashes."""

    workers: int
    sequences: list[Stored]
    placements: list[Placement]
    queries: list[Tokens]


class Hashed(NamedTuple):
    local: list[int]
    chained: list[int]


def directory() -> Path:
    return Path(os.environ.get("KVCACHE_BENCH_DIR", DEFAULT_DIRECTORY))


def path(entries: int, workers: int, queries: int, block_size: int) -> Path:
    return directory() / f"w1_{entries}x{workers}_q{queries}_b{block_size}.bin"


def ensure(entries: int, workers: int, block_sizes: Sequence[int], queries: int) -> list[Path]:
    """The files of this workload, written unless they are there."""
    paths = [path(entries, workers, queries, size) for size in block_sizes]
    if not all(file.exists() for file in paths):
        directory().mkdir(parents=True, exist_ok=True)
        scenario = draw(entries, workers, queries)
        for file, size in zip(paths, block_sizes, strict=True):
            write(file, scenario, size)
    return paths


def draw(entries: int, workers: int, queries: int) -> Scenario:
    rng = np.random.default_rng(RNG_SEED)
    # 200 prompts have 18 M entries at most.
    count = PROMPTS * (1 + entries // ENTRIES_OF_PROMPTS)
    lengths = rng.integers(2000, 8001, count) // BASE_BLOCK_TOKENS * BASE_BLOCK_TOKENS
    prompts = [rng.integers(0, VOCABULARY, length, dtype=np.uint32) for length in lengths]
    sequences, placements = _draw_placements(rng, prompts, entries, workers)
    order = rng.permutation(len(placements))
    asked = [_draw_query(rng, sequences) for _ in range(queries)]
    return Scenario(workers, sequences, [placements[i] for i in order], asked)


def _zipf(count: int) -> npt.NDArray[np.float64]:
    weights = 1 / np.arange(1, count + 1)
    return np.asarray(weights / weights.sum())


def _draw_placements(
    rng: np.random.Generator, prompts: list[Tokens], entries: int, workers: int
) -> tuple[list[Stored], list[Placement]]:
    popularity, holders = _zipf(len(prompts)), _zipf(MAX_HOLDERS)
    sequences: list[Stored] = []
    placements: list[Placement] = []
    used: set[tuple[int, int]] = set()
    has_prompt: set[tuple[int, int]] = set()
    placed = 0
    while placed < entries and len(used) < len(prompts) * CONTINUATIONS:
        prompt = int(rng.choice(len(prompts), p=popularity))
        branch = int(rng.integers(CONTINUATIONS))
        if (prompt, branch) in used:
            continue
        used.add((prompt, branch))
        tail_length = int(rng.integers(1000, 16_001))
        tail_rng = np.random.default_rng([prompt, branch])
        tail = tail_rng.integers(0, VOCABULARY, tail_length, dtype=np.uint32)
        tokens = np.concatenate([prompts[prompt], tail])
        copies = int(rng.choice(MAX_HOLDERS, p=holders)) + 1
        for worker in rng.choice(workers, min(copies, workers), replace=False):
            placements.append(Placement(int(worker), len(sequences)))
            new = len(tail) if (int(worker), prompt) in has_prompt else len(tokens)
            placed += new // BASE_BLOCK_TOKENS
            has_prompt.add((int(worker), prompt))
        sequences.append(Stored(len(prompts[prompt]), tokens))
    return sequences, placements


def _draw_query(rng: np.random.Generator, sequences: list[Stored]) -> Tokens:
    length = int(np.exp(rng.uniform(np.log(1000), np.log(32_000))))
    if rng.random() >= KNOWN_PREFIX_SHARE:
        return rng.integers(0, VOCABULARY, length, dtype=np.uint32)
    known = sequences[int(rng.integers(len(sequences)))].tokens
    cut = min(int(rng.integers(1, len(known) + 1)), length)
    return np.concatenate([known[:cut], rng.integers(0, VOCABULARY, length - cut, dtype=np.uint32)])


def hash_blocks(tokens: Tokens, block_size: int) -> Hashed:
    """Both published hashes of each full block."""
    digest = xxhash.xxh3_64_intdigest
    data = np.ascontiguousarray(tokens, "<u4").data.cast("B")
    step = block_size * 4
    ends = range(step, len(data) + 1, step)
    local = [digest(data[end - step : end], HASH_SEED) for end in ends]
    chained = local[:1]
    pair = struct.Struct("<QQ").pack
    for own in local[1:]:
        chained.append(digest(pair(chained[-1], own), HASH_SEED))
    return Hashed(local, chained)


class Cluster:
    """The reference: a bit mask of workers for each chained hash."""

    def __init__(self) -> None:
        self.entries = 0
        self._holders: dict[int, int] = {}

    def holds(self, worker: int, chained: int) -> bool:
        return bool(self._holders.get(chained, 0) >> worker & 1)

    def store(self, worker: int, blocks: list[int]) -> None:
        for chained in blocks:
            self._holders[chained] = self._holders.get(chained, 0) | 1 << worker
        self.entries += len(blocks)

    def leading(self, chained: list[int]) -> list[tuple[int, int]]:
        """(worker, leading blocks held) of all that hold any, by worker."""
        depth: dict[int, int] = {}
        alive, walked = -1, 0
        for block in chained:
            left = alive & self._holders.get(block, 0)
            if left == 0:
                break
            if alive != -1:
                depth |= dict.fromkeys(_bits(alive & ~left), walked)
            alive = left
            walked += 1
        if walked:
            depth |= dict.fromkeys(_bits(alive), walked)
        return sorted(depth.items())


def _bits(mask: int) -> list[int]:
    return [bit for bit in range(mask.bit_length()) if mask >> bit & 1]


def chop(worker: int, sequence: int, first: int, end: int, block_size: int) -> list[Span]:
    """Events of at most `EVENT_TOKENS`."""
    step = max(EVENT_TOKENS // block_size, 1)
    return [Span(worker, sequence, at, min(step, end - at)) for at in range(first, end, step)]


def write(file: Path, scenario: Scenario, block_size: int) -> None:
    hashed = [hash_blocks(sequence.tokens, block_size) for sequence in scenario.sequences]
    cluster = Cluster()
    stores: list[Span] = []
    removes: list[Span] = []
    for place, (worker, number) in enumerate(scenario.placements):
        chained = hashed[number].chained
        first = 0
        while first < len(chained) and cluster.holds(worker, chained[first]):
            first += 1
        cluster.store(worker, chained[first:])
        stores += chop(worker, number, first, len(chained), block_size)
        if place % EVICT_EVERY == 0:
            private = scenario.sequences[number].shared_tokens // block_size + 1
            removes += chop(worker, number, private, len(chained), block_size)
    asked = [hash_blocks(tokens, block_size) for tokens in scenario.queries]
    answers = [cluster.leading(query.chained) for query in asked]
    unfinished = file.with_suffix(".part")
    with unfinished.open("wb") as out:
        out.write(MAGIC)
        out.write(struct.pack("<3Q", block_size, scenario.workers, cluster.entries))
        _put_prompts(out, [sequence.tokens for sequence in scenario.sequences], hashed)
        _put(out, stores, "<u4")
        _put(out, removes, "<u4")
        _put_prompts(out, scenario.queries, asked)
        _put(out, np.cumsum([len(answer) for answer in answers]), "<u8")
        _put(out, [pair for answer in answers for pair in answer], "<u4")
    unfinished.replace(file)


def _put_prompts(out: BinaryIO, prompts: list[Tokens], hashed: list[Hashed]) -> None:
    _put(out, np.cumsum([len(tokens) for tokens in prompts]), "<u8")
    _put(out, np.cumsum([len(hashes.local) for hashes in hashed]), "<u8")
    _put(out, np.concatenate(prompts), "<u4")
    _put(out, [value for hashes in hashed for value in hashes.local], "<u8")
    _put(out, [value for hashes in hashed for value in hashes.chained], "<u8")


def _put(out: BinaryIO, items: npt.ArrayLike | Iterable[int], dtype: str) -> None:
    array = np.asarray(items, dtype)
    out.write(struct.pack("<Q", len(array)))
    out.write(array.tobytes())


def main() -> None:
    parser = argparse.ArgumentParser(description="Writes workload W1.")
    parser.add_argument("--entries", type=int, default=1_000_000)
    parser.add_argument("--workers", type=int, default=32)
    parser.add_argument("--queries", type=int, default=2000)
    parser.add_argument("--block-size", type=int, nargs="+", default=[16, 128])
    args = parser.parse_args()
    for file in ensure(args.entries, args.workers, args.block_size, args.queries):
        print(file)


if __name__ == "__main__":
    main()
