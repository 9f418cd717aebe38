"""The README's Python and JSON are run as they stand."""

from __future__ import annotations

import json
import re
from pathlib import Path

import kvcache

README = (Path(__file__).parents[1] / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def test_the_index_example_holds() -> None:
    (example,) = [block for block in blocks("python") if "PrefixIndex" in block]
    exec(example, {})  # noqa: S102


def test_the_configuration_example_is_valid() -> None:
    example = next(block for block in blocks("json") if "streams" in block)
    config = kvcache.KvEventsConfig.from_json(example)
    assert [stream.instance_name for stream in config.streams] == ["127.0.0.1:8000"]


def test_the_answer_example_has_the_fields_of_an_answer() -> None:
    example = json.loads(next(block for block in blocks("json") if "matches" in block))
    index = kvcache.PrefixIndex(block_size=2)
    index.store("a", [1], [1, 2])
    (match,) = index.query([1, 2])
    for field in example["matches"][0]:
        assert hasattr(match, field)
