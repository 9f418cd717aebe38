"""Synthetic multi-turn conversations as token ids: what prefix caches live on.

Every conversation opens with one of a few system prompts and grows by a question and an answer a
turn, so prompts share prefixes as chat traffic does. The same seed gives the same traffic.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Conversations", "Turn"]


@dataclass(frozen=True, slots=True)
class Turn:
    """One request of one conversation."""

    conversation: int
    turn: int
    """From 0 within the conversation."""
    token_ids: list[int]
    """The whole prompt: system prompt, all earlier turns, the new question."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversations:
    """Traffic of `count` conversations of `turns` turns each; lengths are in tokens."""

    seed: int
    count: int
    turns: int = 4
    system_prompts: int = 2
    """Distinct system prompts, dealt out in turn."""
    system_tokens: int = 512
    question_tokens: tuple[int, int] = (32, 256)
    """Least and most tokens of a question."""
    answer_tokens: tuple[int, int] = (64, 512)
    """Least and most tokens of an answer."""
    vocabulary: int = 150_000
    """Token ids are below this."""
    at_once: int = 8
    """Conversations under way at a time; their turns interleave."""

    def __iter__(self) -> Iterator[Turn]:
        """Iterate over all turns, each conversation's in order, conversations interleaved."""
        # A simulation wants the same numbers again, not secure ones.
        rng = random.Random(self.seed)  # noqa: S311
        systems = [self._text(rng, self.system_tokens) for _ in range(self.system_prompts)]
        waiting = iter(range(self.count))
        running: list[tuple[int, int, list[int]]] = []
        while True:
            while len(running) < self.at_once and (opened := next(waiting, None)) is not None:
                running.append((opened, 0, list(systems[opened % self.system_prompts])))
            if not running:
                return
            conversation, turn, history = running.pop(rng.randrange(len(running)))
            history += self._text(rng, rng.randint(*self.question_tokens))
            yield Turn(conversation, turn, history.copy())
            history += self._text(rng, rng.randint(*self.answer_tokens))
            if turn + 1 < self.turns:
                running.append((conversation, turn + 1, history))

    def _text(self, rng: random.Random, tokens: int) -> list[int]:
        return rng.choices(range(self.vocabulary), k=tokens)
