"""The search along one axis: asks for the candidates, proves the edge, reads the advisory.

The candidates are releases of a package or commits of its repository; each has its stack.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from trl_compat.bisect import ahead, history
from trl_compat.bisect.advisory_line import Line, line_of
from trl_compat.bisect.ahead import Ahead
from trl_compat.bisect.answer import Advice, Answer, Place, exit_code, proposal
from trl_compat.bisect.around import Around, Move, named
from trl_compat.bisect.bisection import Bisection
from trl_compat.bisect.candidates import Span
from trl_compat.bisect.cell_runs import Seen
from trl_compat.bisect.search import CONFIRMED, Edge, Side, WrongEnd, search
from trl_compat.cells.outcome import Outcome
from trl_compat.cells.verdict import Verdict
from trl_compat.errors import BadInput
from trl_compat.packages import PACKAGES
from trl_compat.running import campaign


class NotAnEnd(BadInput):
    """An end of an axis does not show what it has to."""


class AxisSearch:
    """The search over the candidates of one axis.

    Args:
        shared: what every search of the command shares.
        span: the candidates, the good end first; ``stacks`` their stacks.
        builder: builds environments ahead.
        notes: what a reader should know before.
        dates: the day of a candidate, if it is no release.
        others: another stack for some candidates, for when they cannot be judged in the first.
    """

    def __init__(
        self,
        shared: Bisection,
        span: Span,
        stacks: list[Around],
        builder: Ahead,
        notes: Sequence[str] = (),
        dates: Callable[[str], str] | None = None,
        others: Mapping[int, Around] = MappingProxyType({}),
    ) -> None:
        self.shared, self.span, self.stacks = shared, span, stacks
        self._builder, self._notes = builder, list(notes)
        self._others = dict(others)
        self._seen: dict[int, Seen] = {}
        self.proven: tuple[Seen, Seen]
        self._out_of_reach: list[str] = []
        self._date = dates or self._release_date

    def edge(self) -> Edge:
        """The edge.

        Raises:
            NotAnEnd: an end is not what it is said to be.
        """
        try:
            return search(len(self.stacks), self._ask, self._build_ahead)
        except WrongEnd as error:
            raise NotAnEnd(self._wrong(error)) from None

    def answer(self) -> Answer:
        """The edge with its proof."""
        edge = self.edge()
        good, bad, also = self._on_one_day(edge)
        self.proven = (good, bad)
        advice = self._advice(good, bad)
        between = tuple(self.place(p, self._seen[p]) for p in edge.between)
        skipped = tuple(
            self.place(p, seen)
            for p, seen in sorted(self._seen.items())
            if seen.side is Side.UNJUDGED and p not in edge.between
        )
        answer = Answer(
            question=self.shared.question.words,
            package=self.span.package,
            good=self.place(edge.good, good),
            bad=self.place(edge.bad, bad),
            between=between,
            skipped=skipped,
            also_moved=tuple(also),
            candidates=len(self.stacks),
            tried=len(self._seen),
            runs=self.shared.runs.ran,
            notes=tuple(self._notes),
            advice=advice,
            log=_shown(self.shared),
            exit_code=exit_code(advice),
        )
        self.shared.log.add("answer", sentence=answer.sentence, exit_code=answer.exit_code)
        return answer

    def place(self, position: int, seen: Seen) -> Place:
        """A candidate with what was seen there."""
        version = self.span.versions[position]
        error = seen.verdict.error or {}
        moved = tuple(map(str, self.stacks[position].moved))
        return Place(
            package=self.span.package,
            version=version,
            calls_itself=self._called(version),
            date=self._date(version),
            stack=seen.name,
            outcome=str(seen.verdict.outcome),
            symptom=seen.verdict.symptom or "",
            masked_by=seen.verdict.masked_by or "",
            reason=seen.verdict.reason,
            exception=error.get("exception", ""),
            message=error.get("message", ""),
            where=error.get("where", ""),
            expected=str(seen.expected.outcome or ""),
            runs=len(seen.verdicts),
            unstable=seen.unstable,
            moved=moved,
            command=seen.command,
        )

    def _ask(self, position: int, runs: int) -> Side:
        side = self._ask_in(position, self.stacks[position], runs)
        if side is not Side.UNJUDGED or position not in self._others:
            return side
        first, other = self.stacks[position], self._others.pop(position)
        why = f"not judged with it: {self._seen[position].verdict.outcome}"
        moved = tuple(
            Move(p, getattr(first.stack, p), getattr(other.stack, p), why)
            for p in PACKAGES
            if getattr(first.stack, p) != getattr(other.stack, p)
        )
        self.stacks[position] = dataclasses.replace(other, moved=(*first.moved, *moved))
        return self._ask_in(position, self.stacks[position], runs)

    def _ask_in(self, position: int, one: Around, runs: int) -> Side:
        """The side of a candidate in one stack."""
        version = self.span.versions[position]
        if one.conflict:
            verdict = Verdict(outcome=Outcome.UNRESOLVABLE, reason=one.conflict)
            expected = self.shared.runs.expected(one.name, one.stack)
            assert expected is not None
            seen = Seen(one.name, one.stack, (verdict,), Side.UNJUDGED, verdict, expected)
        else:
            self._announce_torch(one)
            # A second run costs little while the stack is loaded, and may be needed later.
            seen = self.shared.runs.seen(one.name, one.stack, max(runs, CONFIRMED))
        before = self._seen.get(position)
        self._seen[position] = seen
        if before is None or (before.name, before.verdicts) != (seen.name, seen.verdicts):
            self._note(version, one, seen)
        self._check_sources(version, seen)
        return seen.side

    def _build_ahead(self, positions: tuple[int, ...]) -> None:
        self._builder.want([self.stacks[position] for position in positions])

    def _note(self, version: str, one: Around, seen: Seen) -> None:
        self.shared.log.add(
            "step",
            package=self.span.package,
            version=version,
            stack=seen.name,
            versions={p: getattr(seen.stack, p) for p in PACKAGES},
            as_of=seen.stack.as_of.isoformat(),
            moved=[str(move) for move in one.moved],
            side=str(seen.side),
            outcomes=[str(v.outcome) for v in seen.verdicts],
            symptom=seen.verdict.symptom,
            masked_by=seen.verdict.masked_by,
            reason=seen.verdict.reason,
            reused=seen.reused,
            seconds=round(seen.seconds, 1),
            command=seen.command,
        )
        how = "known" if seen.reused else f"{seen.seconds:.0f} s"
        again = f", {len(seen.verdicts)} runs" if len(seen.verdicts) > 1 else ""
        label = version[:9] if len(version) == 40 else version
        moved = f"; moved with it: {', '.join(map(str, one.moved))}" if one.moved else ""
        shows = str(seen.verdict.outcome)
        if detail := seen.verdict.masked_by or seen.verdict.symptom:
            shows += f" ({detail})"
        elif seen.verdict.reason and seen.side is Side.UNJUDGED:
            shows += f" ({seen.verdict.reason[:160]})"
        self.shared.say(f"{self.span.package} {label}: {shows} → {seen.side} [{how}{again}]{moved}")

    def _announce_torch(self, one: Around) -> None:
        if one.stack.torch in self.shared.rules.builds | ahead.held_builds():
            return
        left = ahead.free_bytes()
        what = f"{one.name} needs torch {one.stack.torch}, of which no stack here has a build"
        if left < ahead.TORCH_BYTES:
            raise BadInput(
                f"{what}; it may take {ahead.TORCH_BYTES / 10**9:.0f} GB, and the disk has "
                f"{left / 10**9:.1f} GB left; hold another torch (--hold torch==...)"
            )
        self.shared.say(f"{what}: it is downloaded, up to {ahead.TORCH_BYTES / 10**9:.0f} GB")

    def _check_sources(self, version: str, seen: Seen) -> None:
        """Ends the search if a second candidate in a row is out of reach: it is the source then."""
        if seen.verdict.outcome is not Outcome.UNAVAILABLE:
            self._out_of_reach = []
            return
        self._out_of_reach.append(version)
        if len(set(self._out_of_reach)) > 1 or version in (
            self.span.versions[0],
            self.span.versions[-1],
        ):
            judged = sum(one.side is not Side.UNJUDGED for one in self._seen.values())
            raise BadInput(
                f"{self.span.package} {version}: a source cannot be reached "
                f"({seen.verdict.reason}); {judged} judged candidates are kept: check the network, "
                "and run the same command again to go on"
            )

    def _wrong(self, error: WrongEnd) -> str:
        """Why the ends are no ends."""
        option, wanted = (
            ("--good", self.shared.question.good)
            if error.position == 0
            else ("--bad", self.shared.question.bad)
        )
        seen = self._seen[error.position]
        told = self.place(error.position, seen)
        text = f"{option} {self.span.package} {told.version} {told.shows}, it is not {wanted}"
        if error.found is not Side.UNJUDGED:
            other = len(self.stacks) - 1 - error.position
            side = self._ask(other, 1)
            shows = self.place(other, self._seen[other])
            text += f"; {self.span.package} {shows.version} {shows.shows}"
            if side is not error.found and side is not Side.UNJUDGED:
                text += ": the ends are the wrong way round"
            else:
                text += ": nothing changes between the ends"
        return f"{text}; run it again: {told.command}" if told.command else text

    def _on_one_day(self, edge: Edge) -> tuple[Seen, Seen, list[str]]:
        """Both sides of the edge with the same packages around, if they still differ then."""
        good, bad = self._seen[edge.good], self._seen[edge.bad]
        also = differences(good, bad, self.span.package)
        if not also:
            return good, bad, []
        first, second = (good, bad) if good.stack.as_of >= bad.stack.as_of else (bad, good)
        for later, older in ((first, second), (second, first)):
            if (again := self._in_packages_of(later, older)) is not None:
                pair = (again, bad) if older is good else (good, again)
                return *pair, differences(*pair, self.span.package)
        self._notes.append(
            "with the same packages around both, the two do not differ as they do here: the edge "
            "may be due to what else differs"
        )
        return good, bad, also

    def _in_packages_of(self, later: Seen, older: Seen) -> Seen | None:
        """One side of the edge in the other's surroundings; None if it is another side there."""
        versions = {p: getattr(later.stack, p) for p in PACKAGES}
        versions[self.span.package] = getattr(older.stack, self.span.package)
        commit = older.stack.commit(self.span.package)
        label = f"{self.span.package}-{commit[:9] if commit else versions[self.span.package]}"
        table = self.shared.table
        one = named(later.stack, versions, later.stack.as_of, label, table)
        again = self.shared.runs.seen(one.name, one.stack, CONFIRMED)
        self.shared.log.add("same-day", stack=one.name, side=str(again.side))
        if again.side is older.side:
            return again
        self._notes.append(
            f"in {one.name}, with the packages of the other side, {self.span.package} "
            f"{getattr(older.stack, self.span.package)} is {again.verdict.outcome}"
        )
        return None

    def _advice(self, good: Seen, bad: Seen) -> Advice | None:
        """What the advisories say of both sides."""
        if any(seen.stack.commit(self.span.package) for seen in (good, bad)):
            return None
        right = [campaign.agrees(seen.expected, seen.verdict) for seen in (good, bad)]
        lines = list(self._lines(good, bad))
        said = [line.words for line in lines]
        for place, fits in zip((good, bad), right, strict=True):
            if not fits:
                version = getattr(place.stack, self.span.package)
                said.append(
                    f"{self.span.package} {version} is expected to be {_predicted(place)} and is "
                    f"{place.verdict.outcome}"
                )
        edits = [proposal(line) for line in lines if line.proposed != line.now]
        return Advice(agrees=all(right), lines=tuple(said), proposed=tuple(edits))

    def _lines(self, good: Seen, bad: Seen) -> list[Line]:
        """The ranges that the edge concerns: of what was seen on each side that fails."""
        package = self.span.package
        found = []
        asked = self.shared.question
        conditions = self.shared.catalogue.reproduction(asked.failure).conditions_of(asked.variant)
        for failing, other in ((bad, good), (good, bad)):
            if failing.verdict.outcome not in (Outcome.REPRODUCED, Outcome.MASKED):
                continue
            record = failing.verdict.masked_by or asked.failure
            line = line_of(
                self.shared.catalogue[record],
                self.shared.where.advisories / f"{record}.yaml",
                failing.verdict.symptom,
                {**conditions, "device": asked.device},
                failing.stack,
                package,
                (getattr(other.stack, package), getattr(failing.stack, package)),
            )
            found.append(line)
        return found

    def _called(self, version: str) -> str:
        """What a commit calls itself."""
        return history.calls_itself(self.span.package, version) if len(version) == 40 else ""

    def _release_date(self, version: str) -> str:
        return self.shared.rules.releases.dates.get(self.span.package, {}).get(version, "")


def _predicted(seen: Seen) -> str:
    named_ = seen.expected.masked_by or seen.expected.symptom
    return f"{seen.expected.outcome}{f' ({named_})' if named_ else ''}"


def differences(one: Seen, other: Seen, moved: str) -> list[str]:
    """The packages besides the moved one that differ between two stacks, the good one's first."""
    names = sorted({*one.packages, *other.packages} - {moved})
    return [
        f"{name} {one.packages.get(name, 'absent')} / {other.packages.get(name, 'absent')}"
        for name in names
        if one.packages.get(name) != other.packages.get(name)
    ]


def _shown(shared: Bisection) -> str:
    path: Path = shared.log.path
    try:
        return str(path.relative_to(shared.where.root))
    except ValueError:
        return str(path)
