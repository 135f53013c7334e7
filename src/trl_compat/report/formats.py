"""Every format that a report can have, each a pure function of the results and the advisories."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from trl_compat.advisories import Catalogue
from trl_compat.report import (
    badge,
    ctrf,
    deviations,
    html,
    junit,
    known_good_files,
    markdown,
    sarif,
    trains_right,
)
from trl_compat.report.known_good import known_good
from trl_compat.results import Results


@dataclass(frozen=True)
class Format:
    """A format.

    Attributes:
        file: its file in reports/.
        default: whether that file is written without being asked for; that of the known-good
            stacks is, with the files that it links.
        render: makes the text.
    """

    file: str
    default: bool
    render: Callable[[Results, Catalogue], str]


FORMATS = {
    "html": Format("compatibility.html", True, html.render),
    "markdown": Format("compatibility.md", True, markdown.render),
    "known-good": Format(
        known_good_files.TABLE,
        False,
        lambda document, catalogue: known_good_files.render(known_good(document, catalogue)),
    ),
    "trains-right": Format("trains-right.md", True, trains_right.render),
    "junit": Format("junit.xml", True, lambda document, _: junit.render(document)),
    "badge": Format("badge.svg", True, lambda document, _: badge.render_svg(document)),
    "badge-json": Format("badge.json", True, lambda document, _: badge.render_json(document)),
    "sarif": Format(
        "trl-compat.sarif",
        False,
        lambda document, catalogue: sarif.render(deviations.of_results(document, catalogue)),
    ),
    "ctrf": Format("ctrf.json", False, lambda document, _: ctrf.render(document)),
}
