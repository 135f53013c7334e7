r"""Text for a terminal or a log: no control sequences, no text direction marks, no CI commands.

Characters that are not printed literally appear as ``\x1b`` or ``\u202e``.
"""

from __future__ import annotations

import re
import unicodedata

# Of categories that change what is shown around them: control, format, surrogate, private use,
# line and paragraph separators.
HIDDEN = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
SHOWN = "\t\u200d\ufe0f"  # tabs, and what holds emoji together
# GitHub and Azure read `##[...]` and `##vso[...]` anywhere in a line.
MARKED = re.compile(r"##(?=(?:vso)?\[)")


def line(text: str) -> str:
    """A text in one line."""
    if text.isprintable() and "##" not in text and not text.lstrip().startswith("::"):
        return text
    safe = MARKED.sub("#\\\\x23", "".join(map(_shown, text)))
    start = safe.lstrip()
    if start.startswith("::"):  # a workflow command, wherever the line begins
        return f"{safe[: len(safe) - len(start)]}\\x3a{start[1:]}"
    return safe


def lines(text: str) -> str:
    """A text whose line ends are meant."""
    return "\n".join(map(line, text.split("\n")))


def _shown(sign: str) -> str:
    if sign in SHOWN or unicodedata.category(sign) not in HIDDEN:
        return sign
    code = ord(sign)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
