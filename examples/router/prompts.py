"""What text becomes for the model. A real router must use the tokenizer and the chat template of its engines."""

from __future__ import annotations

from typing import Any

BLOCK_SIZE = 16
"""Tokens a block of the engines' caches."""


def token_ids(path: str, body: dict[str, Any]) -> list[int]:
    """The prompt of an OpenAI request: a token a byte."""
    if path.endswith("/chat/completions"):
        turns = (f"<{message['role']}>{message['content']}" for message in body["messages"])
        text = "".join(turns) + "<assistant>"
    else:
        text = body["prompt"]
    return list(text.encode())
