"""The indexes that Python programs can use, behind one interface: filled, asked, their answers read.

What an index wants its input to look like is prepared before anything is timed.
"""

from __future__ import annotations

import json
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Protocol

import kvcache
import pytest
from pure_python import PurePythonIndex

if TYPE_CHECKING:
    from collections.abc import Callable

    import w1
    from workload import Prompt, Workload

    Event = Callable[[Any], object]

DYNAMO = "ai-dynamo-runtime==1.6.1"


class Index(Protocol):
    """One kind of index."""

    HASHES: bool
    """Whether storing hashes tokens, or is given hashes."""

    @staticmethod
    def empty(load: Workload) -> Any: ...

    @staticmethod
    def store(load: Workload, span: w1.Span) -> Event:
        """What a worker stores, to be applied to an index."""

    @staticmethod
    def remove(load: Workload, span: w1.Span) -> Event:
        """What a worker evicts, to be applied to an index."""

    @staticmethod
    def ask(load: Workload, index: Any) -> Callable[[w1.Tokens], Any]:
        """A query by numpy token ids."""

    @staticmethod
    def held(load: Workload, answer: Any) -> dict[int, int]:
        """Worker to leading blocks held, of those that hold any."""


def _tokens(load: Workload, span: w1.Span) -> w1.Tokens:
    size = load.block_size
    end = span.first + span.blocks
    return load.sequences[span.sequence].tokens[span.first * size : end * size]


def _wires(load: Workload, span: w1.Span) -> list[int]:
    prompt: Prompt = load.sequences[span.sequence]
    wires: list[int] = prompt.chained[span.first : span.first + span.blocks].tolist()
    return wires


def _parent(load: Workload, span: w1.Span) -> int | None:
    return int(load.sequences[span.sequence].chained[span.first - 1]) if span.first else None


class _Streams:
    """What indexes of tokens by stream name have in common."""

    HASHES = True

    @staticmethod
    def store(load: Workload, span: w1.Span) -> Event:
        stream, parent = str(span.worker), _parent(load, span)
        wires, tokens = _wires(load, span), _tokens(load, span)
        return lambda index: index.store(stream, wires, tokens, parent)

    @staticmethod
    def remove(load: Workload, span: w1.Span) -> Event:
        stream, wires = str(span.worker), _wires(load, span)[::-1]
        return lambda index: index.remove(stream, wires)


class Kvcache(_Streams):
    @staticmethod
    def empty(load: Workload) -> kvcache.PrefixIndex:
        return kvcache.PrefixIndex(load.block_size)

    @staticmethod
    def ask(_load: Workload, index: Any) -> Callable[[w1.Tokens], Any]:
        query: Callable[[w1.Tokens], Any] = index.query
        return query

    @staticmethod
    def held(load: Workload, answer: Any) -> dict[int, int]:
        blocks = {int(match.instance_name): match.device_hit_tokens for match in answer}
        return {worker: hit // load.block_size for worker, hit in blocks.items() if hit}


class PurePython(_Streams):
    @staticmethod
    def empty(load: Workload) -> PurePythonIndex:
        return PurePythonIndex(load.block_size)

    @staticmethod
    def ask(_load: Workload, index: PurePythonIndex) -> Callable[[w1.Tokens], Any]:
        return index.query

    @staticmethod
    def held(load: Workload, answer: Any) -> dict[int, int]:
        hits = {int(name): device for name, (device, _host) in answer.items()}
        return {worker: hit // load.block_size for worker, hit in hits.items() if hit}


class DynamoRadixTree:
    """Dynamo's radix tree by its Python binding: events as JSON, prompts as lists."""

    HASHES = False

    @staticmethod
    def empty(_load: Workload) -> Any:
        if find_spec("dynamo") is None:
            pytest.skip(f"compares with Dynamo's RadixTree once it is installed: {DYNAMO}")
        from dynamo._core import RadixTree  # noqa: PLC0415 (optional)

        return RadixTree()

    @staticmethod
    def store(load: Workload, span: w1.Span) -> Event:
        local = load.sequences[span.sequence].local[span.first : span.first + span.blocks]
        blocks = [
            {"block_hash": wire, "tokens_hash": own, "mm_extra_info": None}
            for wire, own in zip(_wires(load, span), local.tolist(), strict=True)
        ]
        return _dynamo_event(span, stored={"parent_hash": _parent(load, span), "blocks": blocks})

    @staticmethod
    def remove(load: Workload, span: w1.Span) -> Event:
        return _dynamo_event(span, removed={"block_hashes": _wires(load, span)[::-1]})

    @staticmethod
    def ask(load: Workload, index: Any) -> Callable[[w1.Tokens], Any]:
        from dynamo._core import compute_block_hash_for_seq  # noqa: PLC0415 (optional)

        block_size = load.block_size

        # By way of a list: element by element out of numpy is slower still.
        def query(token_ids: w1.Tokens) -> Any:
            return index.find_matches(
                compute_block_hash_for_seq(token_ids.tolist(), block_size)
            ).scores

        return query

    @staticmethod
    def held(_load: Workload, answer: Any) -> dict[int, int]:
        return {worker: blocks for (worker, _rank), blocks in answer.items() if blocks}


def _dynamo_event(span: w1.Span, **data: object) -> Event:
    worker, message = span.worker, json.dumps({"event_id": 0, "data": data}).encode()
    return lambda index: index.apply_event(worker, message)


INDEXES: dict[str, type[Index]] = {
    "kvcache": Kvcache,
    "pure python": PurePython,
    "dynamo RadixTree": DynamoRadixTree,
}


def fill(kind: type[Index], load: Workload) -> Any:
    index = kind.empty(load)
    for span in load.stores:
        kind.store(load, span)(index)
    return index
