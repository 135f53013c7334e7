"""Text inside rich's markup, for a terminal or a log."""

from __future__ import annotations

from rich import markup

from trl_compat.text import terminal


def escape(text: str) -> str:
    """Text whose line ends are meant, in which nothing is markup."""
    return markup.escape(terminal.lines(text))
