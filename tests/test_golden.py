"""The Rust core's block identity against python-xxhash's (spec: content keys)."""

from __future__ import annotations

import json
from pathlib import Path

import kvcache
import pytest
import xxhash

CASES = json.loads((Path(__file__).parent / "golden" / "block_keys.json").read_text())["cases"]


def as_hex(packed: bytes) -> list[str]:
    return [packed[at : at + 16][::-1].hex() for at in range(0, len(packed), 16)]


@pytest.mark.parametrize(
    "case", CASES, ids=lambda case: f"{case['hash_seed']}-{case['block_size']}"
)
def test_golden_vectors(case: dict[str, object]) -> None:
    first, step, count = case["first_token"], case["token_step"], case["token_count"]
    seed, size = case["hash_seed"], case["block_size"]
    assert isinstance(first, int)
    assert isinstance(step, int)
    assert isinstance(count, int)
    assert isinstance(seed, int)
    assert isinstance(size, int)
    token_ids = [(first + number * step) % 2**32 for number in range(count)]
    keys = kvcache.block_keys(token_ids, size, seed)
    assert as_hex(keys.block_hashes) == case["block_hashes"]
    assert as_hex(keys.content_keys) == case["content_keys"]
    # The same again from the definition, so that the vectors cannot be wrong together with the core.
    parent = bytes(16)
    for number, expected in enumerate(as_hex(keys.content_keys)):
        tokens = token_ids[number * size : (number + 1) * size]
        block = xxhash.xxh3_128_intdigest(
            b"".join(token.to_bytes(4, "little") for token in tokens), seed
        )
        parent = xxhash.xxh3_128_intdigest(parent + block.to_bytes(16, "little"), seed).to_bytes(
            16, "little"
        )
        assert parent[::-1].hex() == expected
