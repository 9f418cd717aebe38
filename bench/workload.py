"""One seeded workload for every index: workers that share system prompts and diverge after them.

Deterministic for a seed. Token ids are numpy uint32; a store is (worker, wire hashes, token ids, parent), a query token ids.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Tokens = npt.NDArray[np.uint32]
VOCABULARY = 128_000


@dataclass(frozen=True, slots=True)
class Store:
    worker: str
    hashes: list[int]
    token_ids: Tokens
    parent: int | None


@dataclass(frozen=True, slots=True)
class Workload:
    block_size: int
    stores: list[Store]
    queries: list[Tokens]


def make(
    *, block_size: int = 16, prompts: int, continuations: int, queries: int, seed: int = 7
) -> Workload:
    """`prompts` system prompts of 1 k tokens, each continued `continuations` times on some of 8 workers."""
    rng = np.random.default_rng(seed)
    system = [rng.integers(0, VOCABULARY, 1024, dtype=np.uint32) for _ in range(prompts)]
    stores: list[Store] = []
    sequences: list[Tokens] = []
    next_hash = 1
    for prompt in system:
        for _ in range(continuations):
            tail = rng.integers(0, VOCABULARY, 1024, dtype=np.uint32)
            token_ids = np.concatenate([prompt, tail])
            sequences.append(token_ids)
            count = len(token_ids) // block_size
            for worker in rng.choice(8, size=2, replace=False):
                hashes = list(range(next_hash, next_hash + count))
                next_hash += count
                stores.append(Store(f"worker-{worker}", hashes, token_ids, None))
    asked: list[Tokens] = []
    for _ in range(queries):
        known = sequences[int(rng.integers(len(sequences)))]
        cut = int(rng.integers(1, len(known)))
        asked.append(
            np.concatenate([known[:cut], rng.integers(0, VOCABULARY, 2048 - cut, dtype=np.uint32)])
        )
    return Workload(block_size, stores, asked)
