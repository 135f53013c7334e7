"""compatibility.html: one self-contained file to open and search.

It loads nothing, and its content security policy allows only its own script, by digest.  All text
goes through jinja2's autoescaping or, for the embedded data, through JSON with ``<``, ``>`` and
``&`` written as escapes.  The same results give the same bytes.

Without JavaScript the first table, the proven sets and the advisories are complete; the script adds
filters and the evidence of single cells.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from trl_compat.advisories import Advisory, Catalogue, FixBase
from trl_compat.cells.expectations import standalone_name
from trl_compat.cells.outcome import Outcome
from trl_compat.packages import SHOWN_PACKAGES
from trl_compat.report import counts, page_data, pairs, provenance, stand_ins, tables, wording
from trl_compat.report.coverage import Coverage, coverage
from trl_compat.report.page_data import SIGNS, kind
from trl_compat.report.proven import proven_sets
from trl_compat.report.release_summary import ReleaseSummary, VariantRow, by_variant, summaries
from trl_compat.results import Results


@dataclass(frozen=True)
class Box:
    """A cell of the first table: the failure, a kind for colour and sign, and words."""

    failure: str
    kind: str
    word: str
    more: str = ""

    @property
    def sign(self) -> str:
        """One character; never the only thing that tells kinds apart."""
        return SIGNS[self.kind]


@dataclass(frozen=True)
class Group:
    """The stacks of one minor release of TRL, and a box for each failure that speaks for them."""

    minor: str
    stacks: tuple[str, ...]
    boxes: tuple[Box, ...]


@dataclass(frozen=True)
class Trial:
    """A fix, right or wrong, and what became of its cells, in words.

    Those of its standalone form are told apart; empty without one.
    """

    fix: FixBase
    counted: str
    standalone: str = ""


@dataclass(frozen=True)
class Section:
    """Everything that the page says about one failure."""

    advisory: Advisory
    release_summary: tuple[ReleaseSummary, ...]
    variants: tuple[VariantRow, ...]
    fixes: tuple[Trial, ...]
    wrong_fixes: tuple[Trial, ...]
    coverage: Coverage


def render(document: Results, catalogue: Catalogue) -> str:
    """The page."""
    script, style = _file("page.js"), _file("page.css")
    failures = tables.failures_of(document, catalogue.subjects)
    stacks = tables.newest_first(document)
    summaries = tables.summaries_of(document.cells)
    met: dict[str, set[str]] = {}
    for cell in document.cells:
        if cell.masked_by in catalogue.records:
            met.setdefault(str(cell.masked_by), set()).add(cell.stack)
    template = _environment().get_template("compatibility.html.j2")
    return template.render(
        document=document,
        catalogue=catalogue,
        packages=SHOWN_PACKAGES,
        version=tables.version_text,
        wording=wording,
        signs=SIGNS,
        kinds={outcome: kind(outcome) for outcome in Outcome},
        failures=failures,
        stacks=stacks,
        groups=list(_groups(document, summaries, stacks, failures)),
        grouped=len(stacks) > tables.MOST_ROWS,
        boxes={name: [_box(summaries, name, failure) for failure in failures] for name in stacks},
        filters=_filters(document, failures),
        sets=proven_sets(document, failures),
        requirements={name: _requirements(document, name) for name in stacks},
        sections=[_section(document, catalogue, failure) for failure in failures],
        masks=[(catalogue[mask], [s for s in stacks if s in met[mask]]) for mask in sorted(met)],
        coverage=coverage(document, catalogue),
        pairs=pairs.pairs(document),
        pair_marks=pairs.MARKS,
        unread=tables.unread(document),
        when_and_where=provenance.summary(document),
        on_gpus=provenance.on_gpus(document),
        batches=provenance.batches(document),
        stand_ins=stand_ins.used(document),
        style=Markup(style),
        script=Markup(script),
        data=Markup(_json(page_data.embedded(document, catalogue))),
        policy=(
            f"default-src 'none'; script-src {_digest(script)}; style-src {_digest(style)}; "
            "img-src data:; base-uri 'none'; form-action 'none'"
        ),
    )


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("trl_compat.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def _file(name: str) -> str:
    """One of our own files, as it is: it is not a template and never holds data."""
    environment = _environment()
    assert environment.loader is not None
    return environment.loader.get_source(environment, name)[0].strip()


def _digest(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"


def _json(data: object) -> str:
    """JSON that no text in it can end: HTML knows no escapes inside a script element, JSON does."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _box(summaries: Mapping[tuple[str, str], tables.Summary], stack: str, failure: str) -> Box:
    summary = summaries.get((stack, failure))
    if summary is None:
        return Box(failure, "unrun", "not run")
    match summary.outcome:
        case Outcome.REPRODUCED:
            more = "fix proven" if summary.fixed else "no fix proven"
        case Outcome.MASKED:
            more = "by another failure"
        case _:
            more = ""
    return Box(failure, kind(summary.outcome), summary.word, more)


def _groups(
    document: Results,
    summaries: Mapping[tuple[str, str], tables.Summary],
    stacks: Sequence[str],
    failures: Sequence[str],
) -> Iterator[Group]:
    """The stacks, which are in order, by minor release of TRL."""
    for minor, names in tables.by_minor(document, stacks):
        yield Group(minor, names, tuple(_worst(summaries, names, f) for f in failures))


def _worst(
    summaries: Mapping[tuple[str, str], tables.Summary],
    stacks: Sequence[str],
    failure: str,
) -> Box:
    found = tables.worst_of(summaries, stacks, failure)
    if found is None:
        return Box(failure, "unrun", "not run")
    return Box(failure, kind(found.summary.outcome), found.summary.word, found.share)


def _requirements(document: Results, name: str) -> str:
    """The stack as pip requirements."""
    stack = document.stacks[name]
    values = {package: getattr(stack, package) for package in SHOWN_PACKAGES}
    return "\n".join(
        f"{package} @ {value}" if value.startswith("git+") else f"{package}=={value}"
        for package, value in values.items()
    )


def _filters(document: Results, failures: Sequence[str]) -> list[tuple[str, str, list[str]]]:
    """Name, label and choices of each filter; versions newest first."""
    chosen: list[tuple[str, str, list[str]]] = []
    for package in SHOWN_PACKAGES:
        versions = {getattr(stack, package) for stack in document.stacks.values()}
        ordered = sorted(versions, key=lambda v: (tables.version_key(v), v), reverse=True)
        chosen.append((package, package, [tables.version_text(v) for v in ordered]))
    cells = document.cells
    return [
        *chosen,
        ("failure", "failure", list(failures)),
        ("outcome", "outcome", list(document.summary)),
        ("model", "model", _each(c.model for c in cells)),
        ("evidence", "evidence", _each(c.evidence for c in cells)),
    ]


def _each(values: Iterable[str]) -> list[str]:
    return sorted(set(values))


def _section(document: Results, catalogue: Catalogue, failure: str) -> Section:
    advisory = catalogue[failure]
    cells = [cell for cell in document.cells if cell.failure == failure]
    return Section(
        advisory=advisory,
        release_summary=summaries(document, failure),
        variants=by_variant(document, failure),
        fixes=tuple(
            Trial(
                fix,
                counts.proven(counts.of_fix(cells, failure, fix.name)),
                counts.proven(counts.of_fix(cells, failure, standalone_name(fix.name))),
            )
            for fix in advisory.fixes
        ),
        wrong_fixes=tuple(
            Trial(fix, counts.refuted(counts.of_fix(cells, failure, fix.name, wrong=True)))
            for fix in advisory.wrong_fixes
        ),
        coverage=coverage(document, catalogue, failure),
    )
