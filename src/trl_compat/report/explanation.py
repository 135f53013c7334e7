"""An advisory as text for people: what is seen, who is hit, why, since when, the fix, its proof."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from trl_compat.advisories import Advisory, Remedy
from trl_compat.outcomes import Outcome
from trl_compat.report import wording
from trl_compat.report.releases import standings
from trl_compat.results import Results

WIDTH = 88


def sections(advisory: Advisory, document: Results | None) -> Iterator[tuple[str, str]]:
    """Heading and text of each part, in reading order.

    Args:
        advisory: what to explain.
        document: results to take proofs from; None if there are none.
    """
    yield "What happens", _paragraph(advisory.summary)
    yield "What you see", "\n".join(_symptoms(advisory))
    yield "Who is affected", "\n".join(_affected(advisory))
    yield "Why", _paragraph(advisory.cause)
    if document is not None and any(c.failure == advisory.id for c in document.cells):
        yield "What was run", "\n".join(_runs(advisory, document))
    for number, fix in enumerate(advisory.fixes):
        heading = "The fix" if number == 0 else "Another fix"
        parts = [_paragraph(f"{fix.summary} {_proof(fix, document, Outcome.PASS)}")]
        parts.append(textwrap.indent(fix.snippet.rstrip(), "    "))
        if fix.cost:
            parts.append(_paragraph(f"Cost: {fix.cost}"))
        if fix.standalone:
            parts.append(f"Without this package: trl-compat fix {advisory.id} --standalone")
        yield f"{heading}: {fix.name}", "\n\n".join(parts)
    if advisory.wrong_fixes:
        wrong = (
            _item(f"{w.name}: {w.why} {_proof(w, document, Outcome.REPRODUCED)}")
            for w in advisory.wrong_fixes
        )
        yield "What does not fix it", "\n".join(wrong)
    if advisory.advice:
        yield "Advice", _paragraph(advisory.advice)
    references = (f"- {r.url}{f' ({r.note})' if r.note else ''}" for r in advisory.references)
    yield "References", "\n".join(references)
    if advisory.reproduction is not None:
        yield "See it fail", f"nox -s matrix -- --failure {advisory.id}"


def _symptoms(advisory: Advisory) -> Iterator[str]:
    for name, symptom in advisory.symptoms.items():
        said = wording.message(symptom.message)
        yield _item(f"{name}: {symptom.exception}: {said}  (raised in {symptom.where})")


def _affected(advisory: Advisory) -> Iterator[str]:
    for releases, conditions, symptom in wording.affected(advisory):
        when = f"; {conditions}" if conditions else ""
        yield _item(f"{releases}{when}  ({symptom})")
    for absent in advisory.absent:
        yield _item(f"not there: {absent.why}")


def _runs(advisory: Advisory, document: Results) -> Iterator[str]:
    for standing in standings(document, advisory.id):
        yield _item(f"{standing.words} TRL {', '.join(standing.ranges)}")
    evidence = sorted({c.evidence for c in document.cells if c.failure == advisory.id})
    yield _item(f"evidence: {', '.join(evidence)}, {document.generated_at[:10]}")


def _proof(fix: Remedy, document: Results | None, as_said: Outcome) -> str:
    tried = [c for c in document.cells if c.fix == fix.name] if document is not None else []
    if not tried:
        return "(Not run in the results at hand.)"
    count = sum(cell.outcome is as_said for cell in tried)
    word = "Proven" if as_said is Outcome.PASS else "Run: it fails"
    return f"({word} in {count} of {len(tried)} cells.)"


def _paragraph(text: str) -> str:
    return textwrap.fill(" ".join(text.split()), WIDTH, break_on_hyphens=False)


def _item(text: str) -> str:
    lines = " ".join(text.split())
    return textwrap.fill(
        f"- {lines}", WIDTH, subsequent_indent="  ", break_on_hyphens=False, break_long_words=False
    )
