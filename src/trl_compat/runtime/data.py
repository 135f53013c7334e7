"""Tiny prompts for the tiny models, created in memory: nothing is downloaded or cached."""

from __future__ import annotations

from typing import Any

PROMPTS = (
    "What is two plus three?",
    "Name a colour of the sky.",
    "Write a short greeting.",
    "How many days has a week?",
)


def prompt_dataset(rows: int = 8) -> Any:
    """A dataset with the column ``prompt`` (plain text)."""
    from datasets import Dataset

    return Dataset.from_dict({"prompt": [PROMPTS[i % len(PROMPTS)] for i in range(rows)]})


def token_dataset(tokenizer: Any, rows: int = 8) -> Any:
    """A dataset with the column ``input_ids``: tokenized prompts, as PPO takes them."""
    from datasets import Dataset

    texts = [PROMPTS[i % len(PROMPTS)] for i in range(rows)]
    return Dataset.from_dict({"input_ids": [tokenizer(text)["input_ids"] for text in texts]})
