"""From a good and a bad stack the smallest set of package moves that causes the failure.

Delta debugging over what differs, then the edge of each remaining package on its own axis, then the
corners of the conjunction that this makes.  What is said was executed; what was not is named.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trl_compat import advisories
from trl_compat.bisect import ahead, candidates, setup
from trl_compat.bisect.ahead import Ahead
from trl_compat.bisect.answer import Answer, Place
from trl_compat.bisect.around import Around, Rules, named
from trl_compat.bisect.axis import AxisSearch, NotAnEnd
from trl_compat.bisect.bisection import Bisection, Say, open_bisection
from trl_compat.bisect.cell_runs import Seen
from trl_compat.bisect.ddmin import ddmin
from trl_compat.bisect.minimal_answer import Corner, Minimal, sentence
from trl_compat.bisect.search import CONFIRMED, Side
from trl_compat.errors import EXIT_FINDINGS, EXIT_OK, BadInput
from trl_compat.files.names import require_known
from trl_compat.files.project import Project
from trl_compat.packages import PACKAGES
from trl_compat.running import campaign, matrix_run
from trl_compat.shipped import releases, requires
from trl_compat.stacks import matrix
from trl_compat.stacks.matrix import Stack

MOST_CORNERS = 4  # packages whose corners are all run


@dataclass(frozen=True, kw_only=True)
class Request(setup.CellRequest):
    """What is asked, in the user's words; see the command's options."""

    good_stack: str
    bad_stack: str


def run(where: Project, request: Request, options: matrix_run.Options, say: Say) -> Minimal:
    """Answers a request.

    Raises:
        BadInput: something given is wrong, or a stack is not what it is said to be.
    """
    table = matrix.load(where.matrix_file)
    catalogue = advisories.load(where.advisories, where.reproductions)
    setup.check_failure(catalogue, request.failure)
    ends = {}
    for side, name, option in (
        (Side.GOOD, request.good_stack, "--good-stack"),
        (Side.BAD, request.bad_stack, "--bad-stack"),
    ):
        require_known("stack", [name], table.stacks)
        setup.refuse(name, table.stacks[name], option)
        ends[side] = table.stacks[name]
    names = (request.good_stack, request.bad_stack)
    good, bad = ends[Side.GOOD], ends[Side.BAD]
    changes = [p for p in (*PACKAGES, "python") if getattr(good, p) != getattr(bad, p)]
    if not changes and good.as_of == bad.as_of:
        raise BadInput(f"{names[0]} and {names[1]} do not differ: there is nothing to search")
    question = setup.question_of(
        catalogue,
        table,
        request,
        ends,
    )
    rules = Rules(table, releases.known(), requires.known(), builds=ahead.held_builds())
    asked = [request.good_stack, request.bad_stack, *ends.values()]
    shared = open_bisection(where, table, catalogue, question, rules, asked, options, say)
    shared.log.add("began", question=question.words, good=names[0], bad=names[1])
    with shared.resumable(), Ahead() as builder:
        return _Isolation(shared, names, (good, bad), changes, builder).answer()


class _Isolation:
    """One isolation: the good stack, into which changes of the bad one are moved."""

    def __init__(
        self,
        shared: Bisection,
        names: tuple[str, str],
        stacks: tuple[Stack, Stack],
        changes: Sequence[str],
        builder: Ahead,
    ) -> None:
        self.shared, self.names = shared, names
        self.good, self.bad = good, bad = stacks
        self._builder = builder
        self.changes = list(changes)
        self.day = max(good.as_of, bad.as_of)
        self.seen: dict[str, Seen] = {}

    def answer(self) -> Minimal:
        """The answer."""
        self._verify()
        causes = ddmin(self.changes, self._with)
        self.shared.log.add("smallest", causes=causes)
        self.shared.say(f"smallest set: {', '.join(causes)}")
        unproven = [
            f"without {one} the others could not be judged ({seen.verdict.outcome})"
            for one in causes
            if len(causes) > 1
            and (seen := self._observe(frozenset(causes) - {one})).side is Side.UNJUDGED
        ]
        edges: dict[str, Answer] = {}
        for package in causes:
            if package in PACKAGES:
                try:
                    edges[package] = self._edge(package, causes)
                except NotAnEnd as error:
                    unproven.append(f"the edge of {package}: {error}")
        corners = self._corners(causes, edges)
        unproven += [
            f"{corner.words}: {corner.outcome}" for corner in corners if corner.side == "unjudged"
        ]
        wrong = [c for c in corners if c.side not in ("unjudged", c.predicted)]
        agreed = all(campaign.agrees(s.expected, s.verdict) for s in self.seen.values())
        agreed &= all(e.exit_code == EXIT_OK for e in edges.values())
        same = [p for p in PACKAGES if p not in self.changes]
        found = Minimal(
            question=self.shared.question.words,
            good_stack=self.names[0],
            bad_stack=self.names[1],
            differ=tuple(self.changes),
            causes=causes,
            moves={p: (getattr(self.good, p), getattr(self.bad, p)) for p in causes},
            edges=tuple(edges.values()),
            corners=tuple(corners),
            unproven=tuple(unproven),
            holds=not wrong,
            not_varied=tuple(same),
            runs=self.shared.runs.ran,
            exit_code=EXIT_OK if agreed else EXIT_FINDINGS,
        )
        self.shared.log.add("answer", sentence=sentence(found), exit_code=found.exit_code)
        return found

    def _verify(self) -> None:
        """Both stacks as they are, and both on the later day.

        Raises:
            BadInput: one is not on its side.
        """
        question = self.shared.question
        for name, stack, side, wanted, option in (
            (self.names[0], self.good, Side.GOOD, question.good, "--good-stack"),
            (self.names[1], self.bad, Side.BAD, question.bad, "--bad-stack"),
        ):
            as_it_is = named(stack, {}, stack.as_of, f"{side}-end", self.shared.table)
            seen = self._run(as_it_is, CONFIRMED)
            if seen.side is not side:
                raise BadInput(
                    f"{option} {name}: {_shown(seen)}, it is not {wanted}; run it again: "
                    f"{seen.command}"
                )
        none = self._observe(frozenset())
        if none.side is not Side.GOOD:
            raise BadInput(
                f"{self.names[0]} with what lies below its packages as of {self.day}: "
                f"{_shown(none)}; so what changes is below the packages under test: compare the "
                f"locks of {self.names[0]} and {none.name}"
            )
        if self._with(frozenset(self.changes)) is not Side.BAD:
            every = self._observe(frozenset(self.changes))
            raise BadInput(
                f"{self.names[1]} with what lies below its packages as of {self.day}: "
                f"{_shown(every)}; name a stack of a later day"
            )

    def _with(self, changes: frozenset[str]) -> Side:
        return self._observe(changes).side

    def _observe(self, changes: frozenset[str]) -> Seen:
        versions = {p: getattr(self.bad if p in changes else self.good, p) for p in self.changes}
        return self._run(self._stack(versions, "-".join(sorted(changes)) or "good"))

    def _stack(self, versions: Mapping[str, str], label: str) -> Around:
        return named(self.good, versions, self.day, f"mix-{label}"[:40], self.shared.table)

    def _run(self, one: Around, runs: int = 1) -> Seen:
        seen = self.shared.runs.seen(one.name, one.stack, runs)
        self.seen[one.name] = seen
        told = {p: getattr(one.stack, p) for p in self.changes}
        self.shared.log.add(
            "step",
            stack=one.name,
            versions=told,
            side=str(seen.side),
            outcomes=[str(v.outcome) for v in seen.verdicts],
            reason=seen.verdict.reason,
            command=seen.command,
        )
        said = ", ".join(f"{p} {v}" for p, v in told.items())
        self.shared.say(f"{said}: {_shown(seen)} → {seen.side}")
        return seen

    def _edge(self, package: str, causes: tuple[str, ...]) -> Answer:
        """The edge on one package's axis, the other causes as in the bad stack."""
        known = self.shared.rules.releases
        ends = (getattr(self.good, package), getattr(self.bad, package))
        span = candidates.span(package, *ends, known)
        rest = {p: getattr(self.bad if p in causes else self.good, p) for p in self.changes}
        stacks = [
            self._stack({**rest, package: version}, f"{package}-{version}")
            for version in span.versions
        ]
        self.shared.say(f"the edge of {package}: {len(stacks)} releases of {span.words}")
        return AxisSearch(self.shared, span, stacks, self._builder).answer()

    def _corners(self, causes: tuple[str, ...], edges: Mapping[str, Answer]) -> list[Corner]:
        """Each combination of both sides of the edges."""
        axes = [p for p in causes if p in edges]
        if len(axes) < 2 or len(axes) > MOST_CORNERS:
            return []
        found = []
        for choice in itertools.product((Side.GOOD, Side.BAD), repeat=len(axes)):
            versions = {p: getattr(self.bad if p in causes else self.good, p) for p in self.changes}
            picked = {}
            for package, side in zip(axes, choice, strict=True):
                place: Place = edges[package].good if side is Side.GOOD else edges[package].bad
                picked[package] = place.version
            one = self._stack({**versions, **picked}, "corner")
            seen = self._run(one)
            fails = all(side is Side.BAD for side in choice)
            found.append(
                Corner(
                    versions=picked,
                    predicted=str(Side.BAD if fails else Side.GOOD),
                    side=str(seen.side),
                    outcome=_shown(seen),
                    command=seen.command,
                )
            )
        return found


def _shown(seen: Seen) -> str:
    name = seen.verdict.masked_by or seen.verdict.symptom
    return f"{seen.verdict.outcome}{f' ({name})' if name else ''}"
