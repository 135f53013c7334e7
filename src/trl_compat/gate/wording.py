"""The words of a gate's report that all formats share."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from trl_compat.gate.judgement import UNSAID, ChangeVerdict
from trl_compat.gate.report import CellComparison, FailureReport, GateReport, RemedyReport, worst


@dataclass(frozen=True)
class Group:
    """Cells of a failure that show the same thing."""

    verdict: ChangeVerdict
    blocks: bool
    why: str
    places: tuple[CellComparison, ...]

    @property
    def where(self) -> str:
        """The variants, with the models where there are several."""
        models = {place.model for place in self.places}
        names = (p.variant if len(models) == 1 else f"{p.variant}/{p.model}" for p in self.places)
        return ", ".join(names)


def groups(failure: FailureReport) -> list[Group]:
    """The cells of a failure by what they show, the heaviest first; what is fine comes last."""
    by_words: dict[tuple[ChangeVerdict, bool, str], list[CellComparison]] = {}
    for place in failure.places:
        by_words.setdefault((place.verdict, place.blocks, place.why), []).append(place)
    found = [Group(*key, tuple(places)) for key, places in by_words.items()]
    return sorted(found, key=lambda g: (not g.blocks, -g.verdict.height, g.where))


def changes(report: GateReport) -> list[tuple[str, str, str]]:
    """Package, version in the reference, version in the candidate, where they differ."""
    before, after = report.reference.versions, report.candidate.versions
    pairs = [("python", report.reference.python, report.candidate.python)]
    pairs += [(name, before.get(name, ""), after.get(name, "")) for name in before]
    return [(n, was or "none", now or "none") for n, was, now in pairs if was != now]


def verdict(failure: FailureReport) -> str:
    """The verdict on a failure in a word or two, with its mark."""
    if failure.ignored is not None:
        return f"🔕 {failure.verdict}, ignored until {failure.ignored.expires}"
    return f"{failure.verdict.mark} {failure.verdict}"


def remedy(help_: RemedyReport, failure: str) -> str:
    """What helps, in a sentence."""
    against = f" (for {help_.failure})" if help_.failure != failure else ""
    if not help_.name:
        return f"{help_.text}{against}"
    known = {True: "proven on the candidate", False: "does not help on the candidate"}
    proof = known[help_.proven] if help_.proven is not None else "not run on the candidate"
    return f"{help_.name}{against} ({proof}): {help_.text}"


def todo(failure: FailureReport, report: GateReport) -> Iterator[str]:
    """What to do about a failure, a sentence each; nothing where all is well."""
    match failure.verdict:
        case ChangeVerdict.OK | ChangeVerdict.FIXED:
            return
        case ChangeVerdict.CANNOT_TELL:
            gone = worst(failure.places)
            if UNSAID in gone.why:
                name = shlex.quote(gone.trainer)
                yield f"if you use it, name it as well: {report.command} --trainer {name}"
            else:
                yield f"run: {again(report, failure.failure)}"
        case ChangeVerdict.REGRESSION | ChangeVerdict.STILL_FAILING:
            helping = [r for r in failure.remedies if r.proven is not False]
            for number, one in enumerate(helping):
                yield f"{'or' if number else 'fix'}: {remedy(one, failure.failure)}"
            if not helping:
                speaks = worst(failure.places).candidate
                seen = f"read {speaks.log}, then " if speaks and speaks.log else ""
                yield f"no fix is known: {seen}run: {again(report, failure.failure)}"


def gains(report: GateReport) -> str:
    """What the upgrade fixes, where it fixes anything; empty if nothing."""
    said = []
    for failure in report.failures:
        fixed = [group.where for group in groups(failure) if group.verdict is ChangeVerdict.FIXED]
        if fixed:
            part = "" if failure.verdict is ChangeVerdict.FIXED else f" ({', '.join(fixed)})"
            said.append(f"{failure.failure}{part}")
    return f"the upgrade fixes {', '.join(said)}" if said else ""


def again(report: GateReport, failure: str) -> str:
    """The line that runs one failure of a gate afresh."""
    return f"{report.command} --failure {failure} --fresh"


def notes(report: GateReport) -> Iterator[str]:
    """What else a reader should know."""
    for name, side in (("reference", report.reference), ("candidate", report.candidate)):
        for note in side.notes:
            yield f"{name}: {note}"
    for ignore in report.expired:
        yield (
            f"the ignore of {ignore.failure} expired on {ignore.expires} ({ignore.reason}): "
            "review it, then renew or remove it"
        )
    for ignore in report.unused:
        yield f"the ignore of {ignore.failure} is not needed: it does not block"


def what_ran(report: GateReport) -> str:
    """How what is said was proven, and when."""
    seen = [s for f in report.failures for p in f.places for s in (p.reference, p.candidate) if s]
    ran = [s for s in seen if s.evidence != "none"]
    if not ran:
        return "nothing was run"
    days = sorted({s.at[:10] for s in ran})
    span = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    how = ", ".join(sorted({s.evidence for s in ran}))
    return f"{len(ran)} cells of both stacks were run ({how}), {span}"
