"""From the results of two stacks to the verdict on each failure; nothing is run here."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trl_compat.advisories import Advisory, Catalogue, WrongFix, compiling
from trl_compat.cells.expectations import applicable_fixes
from trl_compat.cells.outcome import Outcome
from trl_compat.cells.verdict import Verdict
from trl_compat.gate.advice import CandidateAdvice
from trl_compat.gate.judgement import ChangeVerdict, compare
from trl_compat.gate.report import CellComparison, FailureReport, RemedyReport, Seen, worst
from trl_compat.ranges import outside
from trl_compat.report import logs
from trl_compat.results import CellResult, found_in
from trl_compat.stacks.matrix import Stack
from trl_compat.usage.ignores import Ignore
from trl_compat.usage.relevance import Usage, lacking


@dataclass(frozen=True)
class GateRun:
    """The two stacks and the cells that were run in them; ``folder`` is where their logs lie."""

    reference: str
    candidate: str
    stacks: Mapping[str, Stack]
    cells: Sequence[CellResult]
    folder: str

    def unfixed(self, stack: str, failure: str) -> dict[tuple[str, str], CellResult]:
        """The unfixed cells of a stack, by variant and model."""
        mine = (c for c in self.cells if c.stack == stack and c.failure == failure and not c.fixed)
        return {(cell.variant, cell.model): cell for cell in mine}


def judge(
    catalogue: Catalogue,
    both: GateRun,
    failures: Sequence[str],
    wanted: Usage,
    accepted: Sequence[Ignore],
    today: datetime.date,
) -> list[FailureReport]:
    """The verdict on every failure that has cells, what stops the upgrade first."""
    holding = {i.failure: i for i in accepted if not i.expired(today)}
    advice = CandidateAdvice(compiling.records(catalogue), both.stacks[both.candidate], wanted)
    reports = []
    for failure in failures:
        places = _places(catalogue, both, failure, wanted)
        if not places:
            continue
        advisory, speaks = catalogue[failure], worst(places)
        found = FailureReport(
            failure=failure,
            title=advisory.title,
            severity=advisory.severity,
            reference_url=advisory.references[0].url if advisory.references else "",
            verdict=speaks.verdict,
            blocks=speaks.blocks,
            why=f"{speaks.variant} with {speaks.model}: {speaks.why}",
            places=tuple(places),
            remedies=tuple(_remedies(catalogue, both, failure, places, advice)),
            ignored=holding.get(failure) if speaks.blocks else None,
        )
        reports.append(found)
    return sorted(reports, key=lambda r: (not r.stops, -r.verdict.height, r.failure))


def fixes_to_try(catalogue: Catalogue, both: GateRun) -> Iterator[dict[str, tuple[str, ...]]]:
    """Selections that run the fixes of what fails on the candidate, a failure each."""
    stack = both.stacks[both.candidate]
    for failure in catalogue.subjects:
        cells = both.unfixed(both.candidate, failure).values()
        failing = [cell for cell in cells if cell.outcome is Outcome.REPRODUCED]
        names = {
            name for cell in failing for name in _fixes(catalogue[failure], stack, cell.variant)
        }
        if names:
            yield {
                "stacks": (both.candidate,),
                "failures": (failure,),
                "variants": tuple(sorted({cell.variant for cell in failing})),
                "models": tuple(sorted({cell.model for cell in failing})),
                "fixes": tuple(sorted(names)),
            }


def _places(
    catalogue: Catalogue, both: GateRun, failure: str, wanted: Usage
) -> list[CellComparison]:
    """Every cell of a failure that was run in one of the stacks, controls among them."""
    reproduction = catalogue.reproduction(failure)
    before = both.unfixed(both.reference, failure)
    after = both.unfixed(both.candidate, failure)
    places = []
    for key in sorted({*before, *after}):
        variant, model = key
        conditions = reproduction.conditions_of(variant)
        judged = compare(
            _verdict(before.get(key), both.stacks[both.reference], conditions),
            _verdict(after.get(key), both.stacks[both.candidate], conditions),
            needed=wanted.names(conditions),
            gone=_gone(catalogue[failure], both.stacks[both.candidate], conditions),
        )
        place = CellComparison(
            variant=variant,
            model=model,
            trainer=str(conditions.get("trainer", "")),
            control=variant == reproduction.control,
            reference=_seen(before.get(key), both.folder),
            candidate=_seen(after.get(key), both.folder),
            verdict=judged.verdict,
            blocks=judged.blocks,
            why=judged.why,
        )
        places.append(place)
    return places


def _verdict(
    cell: CellResult | None, stack: Stack, conditions: Mapping[str, Any]
) -> Verdict | None:
    if cell is not None:
        return Verdict(
            outcome=cell.outcome, reason=cell.reason, symptom=cell.symptom, masked_by=cell.masked_by
        )
    package = lacking(stack, conditions)
    if package:
        return Verdict(outcome=Outcome.NOT_APPLICABLE, reason=f"it does not contain {package}")
    return None


def _seen(cell: CellResult | None, folder: str) -> Seen | None:
    if cell is None:
        return None
    log = f"{folder}/{logs.place(cell)}" if cell.log else None
    return Seen(outcome=cell.outcome, at=cell.started_at, evidence=cell.evidence, log=log)


def _gone(advisory: Advisory, stack: Stack, conditions: Mapping[str, Any]) -> str:
    """The trainer of these conditions if the stack's releases do not have it."""
    trainer = conditions.get("trainer")
    return f"{trainer} trainer" if trainer and outside(advisory.available, stack) else ""


def _fixes(advisory: Advisory, stack: Stack, variant: str) -> list[str]:
    """Names of the right fixes that exist in a stack for a variant.

    Their standalone forms are proven in the matrix and cost a gate no time.
    """
    remedies = applicable_fixes(stack, advisory, variant)
    return [remedy.name for remedy in remedies if not isinstance(remedy, WrongFix)]


def _remedies(
    catalogue: Catalogue,
    both: GateRun,
    failure: str,
    places: Sequence[CellComparison],
    advice: CandidateAdvice,
) -> Iterator[RemedyReport]:
    """What helps where the candidate fails: fixes that were run there, then advice."""
    cells = both.unfixed(both.candidate, failure)
    failing = [
        cells[place.variant, place.model]
        for place in places
        if place.verdict
        in (ChangeVerdict.REGRESSION, ChangeVerdict.STILL_FAILING, ChangeVerdict.CANNOT_TELL)
        and (place.variant, place.model) in cells
    ]
    # A cell of an invariant shows the failures that violate it; any other its own.
    broken: dict[str, list[CellResult]] = {}
    for cell in failing:
        if cell.outcome is Outcome.REPRODUCED and (found := found_in(cell)):
            broken.setdefault(found, []).append(cell)
    for found, shown in sorted(broken.items()):
        yield from _tried(catalogue[found], catalogue[failure], both, shown)
        yield from advice.ways_around(found)
    for mask in sorted({cell.masked_by for cell in failing if cell.masked_by}):
        advisory = catalogue[mask]
        for fix in advisory.fixes:
            yield RemedyReport(
                failure=mask, name=fix.name, text=fix.summary, snippet=fix.snippet, cost=fix.cost
            )
        yield from advice.ways_around(mask)


def _tried(
    found: Advisory, subject: Advisory, both: GateRun, broken: Sequence[CellResult]
) -> Iterator[RemedyReport]:
    """The fixes of what was found, as they did in the cells of the failure or invariant."""
    stack = both.stacks[both.candidate]
    for fix in found.fixes:
        meant = [c for c in broken if fix.name in _fixes(subject, stack, c.variant)]
        if not meant:
            continue
        wanted = {(cell.variant, cell.model) for cell in meant}
        tried = {
            (cell.variant, cell.model): cell.outcome
            for cell in both.cells
            if cell.stack == both.candidate
            and cell.failure == subject.id
            and cell.fix == fix.name
            and (cell.variant, cell.model) in wanted
            and cell.outcome.ran  # what was not run, or was stopped earlier, says nothing of it
            and cell.outcome is not Outcome.MASKED
        }
        passed = all(outcome is Outcome.PASS for outcome in tried.values())
        yield RemedyReport(
            failure=found.id,
            name=fix.name,
            text=fix.summary,
            snippet=fix.snippet,
            cost=fix.cost,
            proven=passed if tried.keys() == wanted or not passed else None,
        )
