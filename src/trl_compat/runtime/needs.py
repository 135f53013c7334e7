"""The packages that a cell needs beside those that TRL itself requires.

A cell whose stack lacks one is not applicable there: nothing of its conditions can come about.
Ranks ask before anything else, and expectations are made by the same rule.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

NAMES = {"deepspeed": "DeepSpeed", "peft": "PEFT"}


def needed(conditions: Mapping[str, Any]) -> list[str]:
    """The packages without which these conditions cannot be had."""
    found = []
    if conditions.get("strategy") == "deepspeed" or conditions.get("zero_stage") is not None:
        found.append("deepspeed")
    if conditions.get("peft"):
        found.append("peft")
    return found


def lacking(conditions: Mapping[str, Any], there: Callable[[str], Any]) -> str:
    """What is missing for these conditions, in words; empty if nothing is.

    Args:
        there: whether a package is installed.
    """
    missing = [NAMES[package] for package in needed(conditions) if not there(package)]
    if not missing:
        return ""
    return f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not installed"
