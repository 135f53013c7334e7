"""Suggestions for a misspelt name; free of heavy imports."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

# A grid has a hundred stacks, and a sentence has an end.
MOST_SHOWN = 40


def plain(name: str) -> str:
    """A name as it is compared: small letters and digits only."""
    return re.sub(r"[^a-z0-9]", "", name.casefold())


def nearest(name: str, known: Iterable[str], most: int = 1) -> list[str]:
    """The known names that are spelt most alike, the nearest first; often none."""
    return difflib.get_close_matches(name[:100], list(known), n=most)


def hint(name: str, known: Iterable[str], most: int = 3) -> str:
    """``did you mean 'GRPO'?``, or a list of what there is where nothing is near."""
    by_plain = {plain(one): one for one in sorted(known)}
    near = nearest(plain(name), by_plain, most)
    if near:
        return f"did you mean {either(repr(by_plain[one]) for one in near)}?"
    names = sorted(by_plain.values())
    more = f" and {len(names) - MOST_SHOWN} more" if len(names) > MOST_SHOWN else ""
    return f"available: {', '.join(names[:MOST_SHOWN])}{more}"


def either(texts: Iterable[object]) -> str:
    """``a, b or c``."""
    words = [str(text) for text in texts]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def unknown_name(kind: str, name: str, known: Iterable[str]) -> str:
    """``unknown stack 'x'; did you mean 'y'?`` or the list of what there is."""
    return f"unknown {kind} '{name[:100]}'; {hint(name, known, 1)}"
