"""Made-up traffic of a chat service: trees of prompts, as in the public descriptions of the Mooncake traces.

A session opens with one of a few system prompts, most of them rare, and grows by a question and an answer a turn. Lengths
are log-normal, so that a few prompts are very long. Sessions begin at random (Poisson); now and then comes a burst of
them, most of which share one system prompt, as when somebody starts a batch of agents. The next turn comes a while
after the answer to the one before. The same seed gives the same traffic, token for token, whoever serves it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import kvcache
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    Tokens = npt.NDArray[np.uint32]

VOCABULARY = 151_936
MAX_PROMPT_TOKENS = 65_536
CALM_S, BURST_S, BURST_TIMES = 60.0, 5.0, 5.0
SHARED_IN_BURST = 0.7
_SYSTEMS, _SESSIONS = 1, 2  # what a random stream is for


class LogNormal(NamedTuple):
    """Of positive numbers: half of them are below `median`."""

    median: float
    sigma: float

    def draw(self, rng: np.random.Generator) -> float:
        return self.median * float(np.exp(self.sigma * rng.standard_normal()))

    def tokens(self, rng: np.random.Generator) -> int:
        return max(1, round(self.draw(rng)))


SYSTEM = LogNormal(1_500, 0.8)
FIRST_QUESTION = LogNormal(4_500, 1.0)
QUESTION = LogNormal(1_000, 1.1)
ANSWER = LogNormal(250, 0.8)
THINK_S = LogNormal(15.0, 0.7)
MEAN_TURNS = 2.0


class Turn(NamedTuple):
    """One request of a session."""

    prompt_tokens: int
    """The first so many of the session's tokens."""
    answer_tokens: int
    think_s: float
    """From the end of its answer to the next turn."""


@dataclass(slots=True)
class _Drawn:
    """What a session is, without its tokens."""

    system: int
    turns: list[Turn]
    seed: tuple[int, ...]


class Session:
    """A conversation. Its tokens are made when they are first wanted, and gone with it."""

    def __init__(self, begins_at_s: float, drawn: _Drawn, system: Tokens, block_size: int) -> None:
        self.begins_at_s = begins_at_s
        self.system = drawn.system
        self.turns = drawn.turns
        self._seed = drawn.seed
        self._system = system
        self._block_size = block_size

    @cached_property
    def tokens(self) -> Tokens:
        """Of the last turn's prompt, of which each earlier one is the beginning."""
        wanted = self.turns[-1].prompt_tokens
        rng = np.random.default_rng(self._seed)
        own = rng.integers(0, VOCABULARY, wanted, dtype=np.uint32)
        head = self._system[:wanted]
        own[: len(head)] = head
        return own

    @cached_property
    def names(self) -> list[int]:
        """64-bit names of the full blocks; each names everything before its block too."""
        keys = kvcache.block_keys(self.tokens, self._block_size).content_keys
        names: list[int] = np.frombuffer(keys, dtype="<u8")[::2].tolist()
        return names


@dataclass(frozen=True, slots=True)
class Traffic:
    """`sessions` of them, `sessions_per_s` on average."""

    seed: int
    sessions: int
    sessions_per_s: float
    systems: int = 40
    block_size: int = 128

    def __iter__(self) -> Iterator[Session]:
        """All sessions in the order in which they begin."""
        rng = np.random.default_rng((self.seed, _SYSTEMS))
        prompts = [
            rng.integers(0, VOCABULARY, SYSTEM.tokens(rng), dtype=np.uint32)
            for _ in range(self.systems)
        ]
        # Zipf: the second is asked for half as often as the first.
        chances = 1.0 / np.arange(1, self.systems + 1)
        chances /= chances.sum()
        for number, (begins_at_s, shared) in enumerate(self._begins()):
            rng = np.random.default_rng((self.seed, _SESSIONS, number))
            system = int(rng.choice(self.systems, p=chances))
            if shared is not None and rng.random() < SHARED_IN_BURST:
                system = shared
            turns = list(_turns(rng, len(prompts[system])))
            drawn = _Drawn(system, turns, (self.seed, _SESSIONS, number, 1))
            yield Session(begins_at_s, drawn, prompts[system], self.block_size)

    def _begins(self) -> Iterator[tuple[float, int | None]]:
        """When each session begins, and in a burst which system prompt most of them share."""
        rng = np.random.default_rng((self.seed, _SESSIONS))
        calm_per_s = self.sessions_per_s * (CALM_S + BURST_S) / (CALM_S + BURST_TIMES * BURST_S)
        now_s, until_s, shared = 0.0, rng.exponential(CALM_S), None
        for _ in range(self.sessions):
            per_s = calm_per_s if shared is None else calm_per_s * BURST_TIMES
            now_s += rng.exponential(1 / per_s)
            while now_s >= until_s:
                # How long ago the last session began says nothing about the next: start anew where the rate changes.
                now_s = until_s
                shared = int(rng.integers(self.systems)) if shared is None else None
                per_s = calm_per_s if shared is None else calm_per_s * BURST_TIMES
                until_s += rng.exponential(CALM_S if shared is None else BURST_S)
                now_s += rng.exponential(1 / per_s)
            yield now_s, shared


def _turns(rng: np.random.Generator, system_tokens: int) -> Iterator[Turn]:
    length = system_tokens
    for turn in range(int(rng.geometric(1 / MEAN_TURNS))):
        length += (QUESTION if turn else FIRST_QUESTION).tokens(rng)
        answer = ANSWER.tokens(rng)
        if turn and length > MAX_PROMPT_TOKENS:
            return
        length = min(length, MAX_PROMPT_TOKENS)
        yield Turn(length, answer, THINK_S.draw(rng))
        length += answer
