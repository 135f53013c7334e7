"""A plan: the nearest safe set of versions that meets the target, and the steps to it.

It is computed from the advisories and the releases' requirements, checked with the resolver, and
states for each step what is known about it.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from trl_compat.errors import BadInput
from trl_compat.matching import nearest_run
from trl_compat.matching.applies import covers
from trl_compat.matching.nearest_run import Nearest, Run
from trl_compat.packages import PACKAGES
from trl_compat.shipped import releases, requires
from trl_compat.shipped.records import CompiledAdvisory
from trl_compat.stacks.sources.source import Source
from trl_compat.upgrade.safety import Safety, moved
from trl_compat.upgrade.steps import steps
from trl_compat.upgrade.targets import Choices, Targets
from trl_compat.upgrade.versions import Bump, State, bumps
from trl_compat.usage.conditions import Named

Goal = Mapping[str, SpecifierSet]
Resolver = Callable[[State], str | None]
"""Why a set of versions cannot be installed together; None if it can."""


MOST_REFUSED = 20  # sets of versions by the resolver, before the search is given up
MOST_ENDS = 50  # that are tried for one to which every step moves a single package


@dataclass(frozen=True)
class Refused:
    """A bump that was not taken, and why."""

    bump: Bump
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class Stage:
    """A step of the plan.

    Attributes:
        bumps: what to do; more than one where one alone is not safe.
        nearest: the run stack that is nearest to what one has after it.
        mends: failures that no longer apply after it.
        patches: failures that come with it, each to be patched from here on.
    """

    bumps: tuple[Bump, ...]
    nearest: Nearest | None
    mends: tuple[str, ...]
    patches: tuple[str, ...] = ()


@dataclass(frozen=True)
class UpgradePlan:
    """The answer.

    Attributes:
        named: the conditions that the user named.
        stages: what to do, in order; None where there is no safe way.
        patched: where there is none: the way for who patches what comes with it, if there is one.
        blocked: why there is neither.
        refused: bumps of what one has that were not taken, and why.
        remaining: failures that the versions one has have, too, and that still apply at the end.
        forbidden: what the metadata of the releases that one has forbids already.
        resolved: whether the resolver was asked about every stage.
    """

    source: Source
    goal: Goal
    named: Named
    stages: tuple[Stage, ...] | None
    patched: tuple[Stage, ...] | None
    blocked: tuple[str, ...]
    refused: tuple[Refused, ...]
    remaining: tuple[str, ...]
    forbidden: tuple[str, ...]
    resolved: bool


def goal_of(text: str, source: Source) -> Goal:
    """The goal that a text such as ``trl==1.12.* transformers<5`` names.

    Raises:
        BadInput: it is no requirement of a package under test that one has, or no release that is
            known can meet it.
    """
    goal = {}
    for word in text.split():
        try:
            requirement = Requirement(word)
        except InvalidRequirement:
            raise BadInput(f"--to {word}: not a requirement such as trl==1.12.*") from None
        name = canonicalize_name(requirement.name)
        if name not in PACKAGES:
            raise BadInput(f"--to {word}: a plan can be made for {', '.join(PACKAGES)}")
        if requirement.url or requirement.extras or requirement.marker or not requirement.specifier:
            raise BadInput(f"--to {word}: give a version range and nothing else")
        if name not in source.versions:
            raise BadInput(f"--to {word}: {source.name} has no release of {name} to start from")
        goal[str(name)] = requirement.specifier
        if not any(v in requirement.specifier for v in releases.known().final(name)):
            as_of = releases.known().as_of
            raise BadInput(f"--to {word}: {name} has no such release (list of {as_of})")
        current = source.version(name)
        if current is not None and not _ahead(requirement.specifier, str(name), current):
            raise BadInput(
                f"--to {word}: a plan goes forward, and {word} only matches releases before "
                f"{current}"
            )
    if not goal:
        raise BadInput("--to: names no package")
    return goal


def _ahead(wanted: SpecifierSet, package: str, current: Version) -> bool:
    return current.public in wanted or any(
        version in wanted for version in releases.known().final(package) if version > current
    )


def make(
    source: Source,
    goal: Goal,
    named: Named,
    records: Mapping[str, CompiledAdvisory],
    runs: tuple[Run, ...],
    resolver: Resolver | None,
) -> UpgradePlan:
    """The plan for a source; what the resolver refuses is gone round.

    Raises:
        BadInput: the source leaves a version under test open.
    """
    start = _start(source)
    safety = Safety(records, requires.known(), source, named)
    way = _way(start, goal, safety, resolver)
    patched = None if way is not None else _patched(start, goal, safety, runs, resolver)
    none = way is None and patched is None
    end = way[-1] if way else start
    before, after = safety.failures(start), safety.failures(end)
    return UpgradePlan(
        source=source,
        goal=goal,
        named=named,
        stages=None if way is None else tuple(_stages(start, way, safety, runs)),
        patched=patched,
        blocked=tuple(_blocked(start, goal, safety)) if none else (),
        refused=tuple(_refused(start, goal, safety)),
        remaining=tuple(name for name in after if name in before),
        forbidden=tuple(p.text for p in safety.unmet(start)),
        resolved=resolver is not None,
    )


def _way(start: State, goal: Goal, safety: Safety, resolver: Resolver | None) -> list[State] | None:
    """The sets of versions after each step of the best way; None if there is none."""
    needed = tuple(p for p, range_ in goal.items() if start[p].public not in range_)
    if not needed:
        return []
    targets = Targets(safety, start, _choices(safety, start, goal))
    while len(safety.refused) < MOST_REFUSED:
        found = (steps(start, end, safety) for end in targets.nearest(needed))
        best: tuple[int, list[State]] | None = None
        for way in islice(filter(None, found), MOST_ENDS):
            if best is None or way[0] < best[0]:
                best = way
            if best[0] == len(list(bumps(start, best[1][-1]))):
                break  # every step moves one package
        if best is None:
            return None
        refused = next(((s, why) for s in best[1] if resolver and (why := resolver(s))), None)
        if refused is None:
            return best[1]
        safety.refused[tuple(sorted(refused[0].items()))] = f"the resolver refuses: {refused[1]}"
    return None


def _choices(safety: Safety, start: State, goal: Goal) -> Choices:
    """What each package may be moved to, the newest first; the newest of a span stands for it.

    Packages go forward only, and one of the goal goes to where the goal is.
    """
    found = {}
    for package, current in start.items():
        spans = [list(span) for span in safety.spans.after(package, current)]
        if package in goal:
            if current.public in goal[package]:
                spans = []
            spans = [[v for v in span if v in goal[package]] for span in spans]
        found[package] = [span[-1] for span in reversed(spans) if span]
    return found


def _patched(
    start: State, goal: Goal, safety: Safety, runs: tuple[Run, ...], resolver: Resolver | None
) -> tuple[Stage, ...] | None:
    """The way for who patches what comes with it; None if there is none, either."""
    mended = {name for name, record in safety.records.items() if record.patches}
    way = _way(start, goal, _accepting(mended, safety), resolver)
    if not way:
        return None
    stages = tuple(_stages(start, way, safety, runs))
    for stage, after in zip(stages, way, strict=True):
        then = moved(safety.source, after)
        patches = (safety.records[name].patches for name in stage.patches)
        if not all(any(covers(patch.where, then) for patch in some) for some in patches):
            return None
    return stages


def _blocked(start: State, goal: Goal, safety: Safety) -> Iterator[str]:
    """Why there is no way: the resolver, what the nearest end would bring, or what is gone."""
    if safety.refused:
        yield from dict.fromkeys(safety.refused.values())
        return
    way = _way(start, goal, _accepting(safety.records, safety), None)
    choices = _choices(safety, start, goal)
    nearest = {package: choices[package][-1] for package in goal if choices[package]}
    for problem in safety.problems(start, way[-1] if way else {**start, **nearest}):
        if way:
            yield f"the nearest target would bring {problem.text}"
        elif problem.final:
            yield problem.text


def _accepting(failures: Collection[str], safety: Safety) -> Safety:
    return Safety(safety.records, requires.known(), safety.source, safety.named, failures)


def _refused(start: State, goal: Goal, safety: Safety) -> Iterator[Refused]:
    """Single bumps of what one has, and why they were not taken; those to the goal first."""
    choices = {p: [s[-1] for s in safety.spans.after(p, v)] for p, v in start.items()}
    for package in sorted(choices, key=lambda p: p not in goal):
        for new in reversed(choices[package]):
            problems = safety.problems(start, {**start, package: new})
            if reasons := tuple(problem.text for problem in problems):
                yield Refused(Bump(package, start[package], new), reasons)


def _start(source: Source) -> dict[str, Version]:
    opened = [package for package in PACKAGES if package in source.unpinned]
    if opened:
        raise BadInput(
            f"{source.name}: {', '.join(opened)} not pinned; a plan requires exact versions"
        )
    # What comes from git, or is not there, is left alone.
    return {p: Version(Version(v).public) for p in PACKAGES if (v := source.versions.get(p))}


def _stages(
    start: State, way: Sequence[State], safety: Safety, runs: tuple[Run, ...]
) -> Iterator[Stage]:
    before = start
    for after in way:
        left = safety.failures(after)
        yield Stage(
            bumps=tuple(bumps(before, after)),
            nearest=nearest_run.nearest(moved(safety.source, after), runs),
            mends=tuple(name for name in safety.failures(before) if name not in left),
            patches=safety.brought(before, after),
        )
        before = after


def resolver(python: str) -> Resolver:
    """The resolver itself, as of today; DeepSpeed, which it cannot look into, left out.

    Nothing is built: a plan runs no package's code.
    """
    from trl_compat.stacks.environments import (
        EnvironmentFailed,
        Unresolvable,
        interpreters,
        resolving,
    )
    from trl_compat.stacks.environments.uv import ONLY_WHEELS

    interpreter = interpreters.find(python)
    today = datetime.date.today()
    asked: dict[tuple[tuple[str, Version], ...], str | None] = {}

    def ask(state: State) -> str | None:
        key = tuple(sorted(state.items()))
        if key not in asked:
            lines = [f"{p}=={v}" for p, v in state.items() if p != "deepspeed"]
            try:
                resolving.compile_requirements(lines, today, interpreter, ONLY_WHEELS)
                asked[key] = None
            except Unresolvable as error:
                asked[key] = str(error)
            except EnvironmentFailed as error:
                raise BadInput(
                    f"the package index cannot be reached ({error}); plan without it: --offline"
                ) from None
        return asked[key]

    return ask
