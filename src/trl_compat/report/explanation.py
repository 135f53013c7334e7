"""An advisory as text: symptoms, affected setups, cause, affected releases, the fix, its proof."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from trl_compat.advisories import Advisory
from trl_compat.cells.expectations import standalone_name
from trl_compat.report import wording
from trl_compat.report.account import Account

WIDTH = 88


def sections(
    advisory: Advisory, run: Account, *, checkout: bool = True
) -> Iterator[tuple[str, str]]:
    """Heading and text of each part, in reading order.

    Args:
        advisory: what to explain.
        run: what was run of it, and what came of that.
        checkout: whether the reader is in a checkout, where cells can be run.
    """
    yield "What happens", _paragraph(advisory.summary)
    yield "What you see", "\n".join(_symptoms(advisory))
    yield "Who is affected", "\n".join(_affected(advisory))
    yield "Why", _paragraph(advisory.cause)
    if run.release_summary:
        yield "What was run", "\n".join(_runs(run))
    for number, fix in enumerate(advisory.fixes):
        heading = "The fix" if number == 0 else "Another fix"
        parts = [_paragraph(f"{fix.summary} {_proof(fix.name, run)}")]
        parts.append(textwrap.indent(fix.snippet.rstrip(), "    "))
        if fix.cost:
            parts.append(_paragraph(f"Cost: {fix.cost}"))
        if fix.standalone:
            first = "" if number == 0 else f" --fix {fix.name}"
            proof = _proof(standalone_name(fix.name), run)
            command = f"trl-compat fix {advisory.id}{first} --standalone"
            parts.append(f"Without this package: {command}\n{proof}")
        yield f"{heading}: {fix.name}", "\n\n".join(parts)
    if advisory.wrong_fixes:
        wrong = (_item(f"{w.name}: {w.why} {_proof(w.name, run)}") for w in advisory.wrong_fixes)
        yield "What does not fix it", "\n".join(wrong)
    if around := wording.ways_around(advisory):
        yield "Other ways", "\n".join(_item(sentence) for sentence in around)
    references = (f"- {r.url}{f' ({r.note})' if r.note else ''}" for r in advisory.references)
    yield "References", "\n".join(references)
    if advisory.reproduction is not None:
        where = "" if checkout else "In a clone of trl-compat: "
        yield "See it fail", f"{where}nox -s matrix -- --failure {advisory.id}"


def _symptoms(advisory: Advisory) -> Iterator[str]:
    for name, symptom in advisory.symptoms.items():
        raised, said, where = wording.seen(symptom)
        place = where if raised == wording.NOTHING else f"raised in {where}"
        yield _item(f"{name}: {raised}: {said}  ({place})")


def _affected(advisory: Advisory) -> Iterator[str]:
    symptoms: dict[str, list[str]] = {}
    for releases, conditions, symptom in wording.affected(advisory):
        symptoms.setdefault(f"{releases}; {conditions or 'always'}", []).append(symptom)
    for where, shown in symptoms.items():
        yield _item(f"{where}  ({', '.join(shown)})")
    for why in dict.fromkeys(absent.why for absent in advisory.absent):
        yield _item(f"not applicable: {why}")


def _runs(run: Account) -> Iterator[str]:
    yield from map(_item, run.release_summary)
    for line in run.evidence:
        yield _item(f"evidence: {line}")
    if run.source:
        yield _item(f"from {run.source}")


def _proof(fix: str, run: Account) -> str:
    if fix not in run.fixes:
        return "(Not run in the available results.)"
    said = run.fixes[fix]
    return f"({said[0].upper()}{said[1:]}.)"


def _paragraph(text: str) -> str:
    return textwrap.fill(" ".join(text.split()), WIDTH, break_on_hyphens=False)


def _item(text: str) -> str:
    lines = " ".join(text.split())
    return textwrap.fill(
        f"- {lines}", WIDTH, subsequent_indent="  ", break_on_hyphens=False, break_long_words=False
    )
