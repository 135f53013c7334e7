"""What an exception looked like: type, message, raising place and the way there.

The harness decides with these alone whether a failure is the known one, so they are recorded as
seen, with paths cut down to ``package/module.py`` to be equal on every machine.
"""

from __future__ import annotations

import traceback
from types import TracebackType
from typing import Any

# Attribute look-ups raise inside these; the place of interest is whoever looked the attribute up.
LOOKUP_FUNCTIONS = frozenset({"__getattr__", "__getattribute__"})


# A message can hold whole tensors; so much of it is kept, and of a traceback its end.
LONGEST = 20_000


def _end_of(text: str) -> str:
    return text if len(text) <= 2 * LONGEST else "[...]\n" + text[-2 * LONGEST :]


def package_path(filename: str) -> str:
    """``.../site-packages/trl/trainer/x.py`` → ``trl/trainer/x.py``; other paths keep two parts."""
    path = filename.replace("\\", "/")
    for marker in ("/site-packages/", "/dist-packages/"):
        if marker in path:
            return path.rsplit(marker, 1)[1]
    return "/".join(path.split("/")[-2:])


def frames_of(tb: TracebackType | None) -> list[dict[str, Any]]:
    """The frames of a traceback, outermost first, as ``{file, function, line}``."""
    return [
        {"file": package_path(f.filename), "function": f.name, "line": f.lineno}
        for f in traceback.extract_tb(tb)
    ]


def raising_place(frames: list[dict[str, Any]]) -> str:
    """``file:function`` of the innermost frame that is not a mere attribute look-up."""
    for frame in reversed(frames):
        if frame["function"] not in LOOKUP_FUNCTIONS:
            return f"{frame['file']}:{frame['function']}"
    return "unknown"


def describe(error: BaseException) -> dict[str, Any]:
    """The exception as JSON: ``exception, message, where, frames, traceback``."""
    frames = frames_of(error.__traceback__)
    where = getattr(error, "where", None) or raising_place(frames)
    return {
        "exception": type(error).__name__,
        "message": str(error)[:LONGEST],
        "where": where,
        "frames": frames,
        "traceback": _end_of(
            "".join(traceback.format_exception(type(error), error, error.__traceback__))
        ),
    }
