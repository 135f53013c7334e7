"""What changes in a text, as a unified diff."""

from __future__ import annotations

import difflib


def unified(path: str, before: str, after: str) -> str:
    """The lines that differ with their surroundings, in the form that ``git apply`` reads."""
    found = difflib.unified_diff(
        before.splitlines(keepends=True), after.splitlines(keepends=True), f"a/{path}", f"b/{path}"
    )
    return "".join(line if line.endswith("\n") else f"{line}\n" for line in found)
