"""The same conversations through the router twice, cache-aware and round robin, on two fresh engines each.

python compare.py      ten seconds
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import httpx

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent
ENGINES = 2
ANSWER_TOKENS = 16
SYSTEM_PROMPTS, SYSTEM_WORDS, QUESTION_WORDS = 3, 200, 80
THINK_S = (0.05, 0.25)
READY_S, TALK_S = 30.0, 90.0


class Answer(NamedTuple):
    """One answer, received whole."""

    text: str
    first_token_s: float
    prompt_tokens: int
    cached_tokens: int
    instance: str


@contextmanager
def process(*command: str) -> Iterator[subprocess.Popen[str]]:
    """One of the scripts here, ended with the block."""
    started = subprocess.Popen(
        [sys.executable, str(HERE / command[0]), *command[1:]], stdout=subprocess.PIPE, text=True
    )
    try:
        yield started
    finally:
        started.terminate()
        try:
            started.communicate(timeout=5.0)
        except subprocess.TimeoutExpired:
            started.kill()
            started.communicate()


@contextmanager
def fleet(policy: str) -> Iterator[str]:
    """A router over fresh engines, whose caches it knows; its URL."""
    with ExitStack() as stack:
        # Should this process be killed, the router ends by itself, and the engines without it.
        limit = str(READY_S + TALK_S)
        command = ("router.py", "--port", "0", "--policy", policy, "--duration", limit)
        router = stack.enter_context(process(*command))
        assert router.stdout is not None
        url = router.stdout.readline().strip()
        for _ in range(ENGINES):
            stack.enter_context(process("engine.py", "--router", url))
        deadline = time.monotonic() + READY_S
        with httpx.Client(base_url=url, trust_env=False) as client:
            while client.get("/health").json()["synchronized"] < ENGINES:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"the router does not know all engines within {READY_S} s")
                time.sleep(0.05)
        yield url


async def ask(client: httpx.AsyncClient, messages: list[dict[str, str]]) -> Answer:
    """One turn. Raises `RuntimeError` for an answer that is not whole."""
    body = {"messages": messages, "stream": True, "max_tokens": ANSWER_TOKENS}
    words: list[str] = []
    usage: dict[str, Any] | None = None
    done, first_token_s, asked_at = False, 0.0, time.perf_counter()
    async with client.stream("POST", "/v1/chat/completions", json=body) as answer:
        answer.raise_for_status()
        instance = answer.headers["x-kvcache-instance"]
        async for line in answer.aiter_lines():
            if line == "data: [DONE]":
                done = True
            elif line:
                first_token_s = first_token_s or time.perf_counter() - asked_at
                chunk = json.loads(line.removeprefix("data: "))
                words.append(chunk["choices"][0]["delta"]["content"])
                usage = chunk["usage"] or usage
    if not done or usage is None or len(words) != ANSWER_TOKENS:
        raise RuntimeError(f"an answer broke off after {len(words)} tokens")
    cached = usage["prompt_tokens_details"]["cached_tokens"]
    return Answer("".join(words), first_token_s, usage["prompt_tokens"], cached, instance)


def text(dice: random.Random, words: int) -> str:
    return " ".join(f"{dice.randrange(100_000)}" for _ in range(words))


async def talk(client: httpx.AsyncClient, number: int, turns: int) -> list[Answer]:
    """One conversation, which is the same each time but for when its questions come."""
    dice = random.Random(number)
    system = text(random.Random(f"system {number % SYSTEM_PROMPTS}"), SYSTEM_WORDS)
    messages = [{"role": "system", "content": system}]
    answers = []
    for _ in range(turns):
        await asyncio.sleep(dice.uniform(*THINK_S))
        messages.append({"role": "user", "content": text(dice, QUESTION_WORDS)})
        answers.append(await ask(client, messages))
        messages.append({"role": "assistant", "content": answers[-1].text})
    return answers


async def talk_all(url: str, conversations: int, turns: int) -> list[Answer]:
    async with (
        asyncio.timeout(TALK_S),
        httpx.AsyncClient(base_url=url, timeout=TALK_S, trust_env=False) as client,
    ):
        talks = (talk(client, number, turns) for number in range(conversations))
        return [answer for answers in await asyncio.gather(*talks) for answer in answers]


def row(policy: str, answers: list[Answer]) -> str:
    asked = sum(one.prompt_tokens for one in answers)
    reused = sum(one.cached_tokens for one in answers) / asked
    waits_ms = sorted(one.first_token_s * 1e3 for one in answers)
    mean, p95 = sum(waits_ms) / len(waits_ms), waits_ms[int(0.95 * (len(waits_ms) - 1))]
    served = [one.instance for one in answers]
    shares = "+".join(str(served.count(name)) for name in sorted(set(served)))
    return f"{policy:6} {shares:>9} {reused:>9.1%} {mean:>12.0f} ms {p95:>8.0f} ms"


def main() -> None:
    parser = argparse.ArgumentParser(description="Compares CAR with round robin.")
    parser.add_argument("--conversations", type=int, default=9)
    parser.add_argument("--turns", type=int, default=8)
    args = parser.parse_args()
    print(f"{'policy':6} {'requests':>9} {'reused':>9} {'first token':>15} {'p95':>11}", flush=True)
    for policy in ("CAR", "RR"):
        with fleet(policy) as url:
            answers = asyncio.run(talk_all(url, args.conversations, args.turns))
        print(row(policy, answers), flush=True)


if __name__ == "__main__":
    main()
