"""What is private is taken out of results when they are written: folders, tokens, host name."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable
from functools import cache, lru_cache
from typing import Any

HOME = r"/(?:home|Users)/[^/\s\"':]+|/root(?=/)"
TOKEN = (re.compile(r"\b(?:hf_|sk-|ghp_|github_pat_|AKIA)[A-Za-z0-9_-]{8,}"), "<token>")
# Paths are cut down to where they mean the same on every machine.
ANCHORS = r"site-packages|tests/reproductions|tiny_models|lib/python3\.\d+|environments"
SCRUBBED = (
    (re.compile(rf"(?:/[\w.@+~-]+)+/(?=(?:{ANCHORS})/)"), ""),
    (re.compile(r"/[^\s\"':,)]*?/trl-compat-\w+"), "<cell>"),
    (re.compile(HOME), "~"),
    (re.compile(r"/(?:private/)?(?:tmp|var/tmp|var/folders)/[^\s\"':,)]*"), "<tmp>"),
    TOKEN,
)
IN_COMMANDS = ((re.compile(rf"(?<![\w.~-])(?:{HOME})"), "~"), TOKEN)


def scrub(text: str) -> str:
    """The text without home folders, temporary folders, host name and anything like a token."""
    return _without(text, SCRUBBED)


def scrub_command(text: str) -> str:
    """A line to paste without what is private; its other paths stay, or it would not run."""
    return _without(text, IN_COMMANDS)


def _without(text: str, patterns: Iterable[tuple[re.Pattern[str], str]]) -> str:
    for pattern, substitute in patterns:
        if "/" in text or pattern is TOKEN[0]:  # all others begin with it
            text = pattern.sub(substitute, text)
    name = _host_name()
    return text.replace(name, "<host>") if len(name) > 4 else text


@cache
def _host_name() -> str:
    return socket.gethostname()


def scrubbed(data: Any, key: str = "") -> Any:
    """Plain data without what is private in any of its texts; those called ``command`` stay lines.

    Texts repeat a lot from cell to cell.
    """
    match data:
        case str():
            return _once_as_command(data) if key == "command" else _once(data)
        case dict():
            return {name: scrubbed(value, name) for name, value in data.items()}
        case list():
            return [scrubbed(value, key) for value in data]
        case _:
            return data


_once = lru_cache(maxsize=20_000)(scrub)
_once_as_command = lru_cache(maxsize=20_000)(scrub_command)
