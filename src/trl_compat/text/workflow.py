"""Text inside a workflow command of GitHub Actions (``::error file=…::message``)."""

from __future__ import annotations

from trl_compat.text import terminal


def message(text: str) -> str:
    """The text behind the last ``::``; its line ends are kept."""
    safe = terminal.lines(text.replace("\r\n", "\n"))
    return safe.replace("%", "%25").replace("\n", "%0A")


def value(text: str) -> str:
    """The value of a property."""
    return message(terminal.line(text)).replace(":", "%3A").replace(",", "%2C")
