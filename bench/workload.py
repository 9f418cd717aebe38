"""Reads workload W1 as `w1.py` wrote it, for the benchmarks in Python.

Arrays are views of the file's bytes; the format is described there.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import w1

if TYPE_CHECKING:
    from pathlib import Path

HEADER = struct.Struct("<8s3Q")


@dataclass(frozen=True, slots=True)
class Prompt:
    """Token ids (uint32), and the published hashes (uint64) of each full block."""

    tokens: w1.Tokens
    local: npt.NDArray[np.uint64]
    chained: npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Query:
    prompt: Prompt
    answer: dict[int, int]
    """Worker to leading blocks held; who holds none is left out."""


@dataclass(frozen=True, slots=True)
class Workload:
    block_size: int
    workers: int
    entries: int
    sequences: list[Prompt]
    stores: list[w1.Span]
    removes: list[w1.Span]
    queries: list[Query]


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = HEADER.size

    def array(self, dtype: str, columns: int = 1) -> npt.NDArray[Any]:
        (count,) = struct.unpack_from("<Q", self._data, self._at)
        items = np.frombuffer(self._data, dtype, count * columns, self._at + 8)
        self._at += 8 + items.nbytes
        return items if columns == 1 else items.reshape(count, columns)

    def prompts(self) -> list[Prompt]:
        token_ends, block_ends = self.array("<u8")[:-1], self.array("<u8")[:-1]
        tokens = np.split(self.array("<u4"), token_ends)
        local = np.split(self.array("<u8"), block_ends)
        chained = np.split(self.array("<u8"), block_ends)
        return [Prompt(*parts) for parts in zip(tokens, local, chained, strict=True)]

    def spans(self) -> list[w1.Span]:
        return [w1.Span(*row) for row in self.array("<u4", 4).tolist()]


def load(file: Path) -> Workload:
    """The workload in `file`.

    Raises ValueError for a file of another format.
    """
    data = file.read_bytes()
    magic, block_size, workers, entries = HEADER.unpack_from(data)
    if magic != w1.MAGIC:
        raise ValueError(f"not a W1 file, delete it and run bench/w1.py: {file}")
    reader = _Reader(data)
    sequences, stores, removes = reader.prompts(), reader.spans(), reader.spans()
    asked = reader.prompts()
    ends = reader.array("<u8")[:-1]
    answers = [dict(pairs.tolist()) for pairs in np.split(reader.array("<u4", 2), ends)]
    queries = [Query(*pair) for pair in zip(asked, answers, strict=True)]
    return Workload(block_size, workers, entries, sequences, stores, removes, queries)
