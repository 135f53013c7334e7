"""Text for GitHub's and GitLab's Markdown, shown literally.

It cannot become HTML, a table column, a link, an image, emphasis, a mention or an issue reference.
"""

from __future__ import annotations

import re

from trl_compat.text import terminal

# An underscore inside a word is no emphasis.
SIGNS = re.compile(r"[\\`*\[\]|~$]|(?<!\w)_|_(?!\w)")
# An empty comment between its parts keeps a word from being found as a link or a mention.
LINKS = re.compile(r"(?<=:)(?=//)|(?<=www)(?=\.)|(?<=@)(?=\w)|(?<=#)(?=\d)", re.IGNORECASE)
BEGINNINGS = re.compile(r"^(?=[#>+=-])|^(\d+)(?=[.)])")


def inline(text: str) -> str:
    """Text inside a line or a cell of a table."""
    safe = terminal.line(" ".join(text.split()))
    safe = safe.replace("&", "&amp;").replace("<", "&lt;")
    return LINKS.sub("<!-- -->", SIGNS.sub(r"\\\g<0>", safe))


def paragraph(text: str) -> str:
    """Text that begins a line: it begins no heading, quotation or list."""
    return BEGINNINGS.sub(lambda found: f"{found[1] or ''}\\", inline(text))


def code(text: str) -> str:
    """Text as code inside a line or a cell of a table."""
    safe = terminal.line(" ".join(text.split())) or " "
    ticks = "`" * (1 + max((len(run) for run in re.findall(r"`+", safe)), default=0))
    pad = " " if safe.startswith("`") or safe.endswith("`") else ""
    return f"{ticks}{pad}{safe}{pad}{ticks}".replace("|", "\\|")


def link(text: str, url: str) -> str:
    """A link to a page; the text alone where the address is none that may be followed."""
    if not re.fullmatch(r"https://[\w./?=&%#:,~+@-]+", url):
        return inline(text)
    return f"[{inline(text)}]({url})"


def block(text: str, language: str = "") -> list[str]:
    """The lines of a block of code; nothing in it ends it."""
    kept = terminal.lines(text.rstrip())
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall(r"`+", kept)), default=0))
    return [f"{fence}{language}", kept, fence]
