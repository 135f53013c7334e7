"""The badge: one line for a README, as JSON for shields.io and as an SVG."""

from __future__ import annotations

import json
from dataclasses import dataclass
from html import escape

from trl_compat.cells.outcome import Outcome
from trl_compat.results import Results

LABEL = "trl-compat"
# Width of a character at 11 px, on the safe side; textLength makes the text fit exactly.
CHARACTER = 6.6


@dataclass(frozen=True)
class Badge:
    """What the badge says; the colour only repeats it."""

    message: str
    colour: str
    hex: str


def of_results(document: Results) -> Badge:
    """Whether the cells are as the advisories say, and of how many stacks that is known."""
    deviating = sum(not cell.agrees for cell in document.cells)
    ran = sum(cell.outcome in (Outcome.PASS, Outcome.REPRODUCED) for cell in document.cells)
    told = {c.stack for c in document.cells if c.expected is not None and c.outcome.ran}
    if deviating:
        word = "cell" if deviating == 1 else "cells"
        return Badge(f"{deviating} {word} not as recorded", "red", "#b3261e")
    if not ran:
        return Badge("nothing was run", "lightgrey", "#6e7681")
    stacks = f"{len(told)} stack{'s' if len(told) != 1 else ''}"
    return Badge(f"{stacks}, all as recorded", "brightgreen", "#1a7f37")


def render_json(document: Results) -> str:
    """The JSON of a shields.io endpoint badge."""
    badge = of_results(document)
    shown = {
        "schemaVersion": 1,
        "label": LABEL,
        "message": badge.message,
        "color": badge.colour,
        "isError": badge.colour == "red",
    }
    return json.dumps(shown) + "\n"


def render_svg(document: Results) -> str:
    """The badge as a picture that needs no service."""
    badge = of_results(document)
    left, right = (round(len(text) * CHARACTER) for text in (LABEL, badge.message))
    width = left + right + 40
    said = escape(f"{LABEL}: {badge.message}")
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="20" role="img" aria-label="{said}">
<title>{said}</title>
<clipPath id="r"><rect width="{width}" height="20" rx="4"/></clipPath>
<g clip-path="url(#r)">
<rect width="{left + 20}" height="20" fill="#444c56"/>
<rect x="{left + 20}" width="{right + 20}" height="20" fill="{badge.hex}"/>
</g>
<g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">
<text x="10" y="14" textLength="{left}">{LABEL}</text>
<text x="{left + 30}" y="14" textLength="{right}">{escape(badge.message)}</text>
</g>
</svg>
"""
