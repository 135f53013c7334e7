"""A plan: the path that the search finds, checked with the resolver, with what is known of it."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from trl_compat import releases, requires
from trl_compat.doctor import evidence
from trl_compat.doctor.conditions import Named
from trl_compat.doctor.evidence import Nearest, Run
from trl_compat.doctor.records import Record
from trl_compat.errors import BadInput
from trl_compat.packages import PACKAGES
from trl_compat.sources.source import Source
from trl_compat.upgrade.safety import Safety, worth_trying
from trl_compat.upgrade.search import Bump, Refused, Step, Versions, search

Goal = Mapping[str, SpecifierSet]
Resolver = Callable[[Versions], str | None]
"""Why a set of versions cannot be installed together; None if it can."""


@dataclass(frozen=True)
class Stage:
    """A bump of the plan.

    Attributes:
        nearest: the run stack that is nearest to what one has after it.
        mends: failures that no longer apply after it.
    """

    bump: Bump
    nearest: Nearest | None
    mends: tuple[str, ...]


@dataclass(frozen=True)
class Plan:
    """The answer.

    Attributes:
        named: the conditions that the user named.
        stages: what to do, in order; None where there is no safe way.
        refused: what was not taken, and why.
        remaining: failures that the versions one has have, too, and that still apply at the end.
        resolved: whether the resolver was asked about every stage.
    """

    source: Source
    goal: Goal
    named: Named
    stages: tuple[Stage, ...] | None
    refused: tuple[Refused, ...]
    remaining: tuple[str, ...]
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
            raise BadInput(f"--to {word}: give a range of versions and nothing else")
        if name not in source.versions:
            raise BadInput(f"--to {word}: {source.name} has no release of {name} to start from")
        goal[str(name)] = requirement.specifier
        known = [Version(v) for v in requires.known()[name]]
        if not any(version in requirement.specifier for version in known):
            raise BadInput(_not_known(word, str(name), requirement.specifier, known))
    if not goal:
        raise BadInput("--to: names no package")
    return goal


def _not_known(word: str, name: str, wanted: SpecifierSet, known: Sequence[Version]) -> str:
    listed = releases.known()
    there = ", ".join(str(version) for version in known)
    if not any(version in wanted for version in listed.of(name)):
        return f"--to {word}: {name} has no such release (list of {listed.as_of})"
    return (
        f"--to {word}: what such a release of {name} requires is not on record; it is for {there}. "
        "For others, run a gate"
    )


def make(
    source: Source,
    goal: Goal,
    named: Named,
    records: Mapping[str, Record],
    runs: tuple[Run, ...],
    resolver: Resolver | None,
) -> Plan:
    """The plan for a source; what the resolver refuses is gone round.

    Raises:
        BadInput: the source leaves a version under test open.
    """
    start = _start(source)
    choices = worth_trying(records, requires.known(), start, goal)
    safety = Safety(records, requires.known(), source, named)

    def reached(state: Versions) -> bool:
        return all(state[p].public in range_ for p, range_ in goal.items())

    while True:
        found = search(start, reached, choices, safety.objections)
        steps = found.steps or ()
        step = next((s for s in steps if _refused(s, resolver, safety)), None)
        if step is None:
            break
    end = steps[-1].after if steps else start
    before, after = safety.failures(start), safety.failures(end)
    refused = found.refused or tuple(dict.fromkeys(r for s in steps for r in s.refused))
    return Plan(
        source=source,
        goal=goal,
        named=named,
        stages=None if found.steps is None else _stages(start, steps, source, safety, runs),
        refused=refused,
        remaining=tuple(name for name in after if name in before),
        resolved=resolver is not None,
    )


def _refused(step: Step, resolver: Resolver | None, safety: Safety) -> bool:
    """Asks the resolver about a step; remembers a refusal as what speaks against it."""
    reason = resolver(step.after) if resolver else None
    if reason is not None:
        safety.refused[tuple(sorted(step.after.items()))] = f"the resolver refuses: {reason}"
    return reason is not None


def _start(source: Source) -> dict[str, Version]:
    opened = [package for package in PACKAGES if package in source.unpinned]
    if opened:
        raise BadInput(
            f"{source.name}: {', '.join(opened)} not pinned; a plan needs exact versions"
        )
    # What comes from git, or is not there, is left alone.
    return {p: Version(Version(v).public) for p in PACKAGES if (v := source.versions.get(p))}


def _stages(
    start: Versions, steps: Sequence[Step], source: Source, safety: Safety, runs: tuple[Run, ...]
) -> tuple[Stage, ...]:
    stages = []
    before = start
    for step in steps:
        versions = {**source.versions, **{p: str(v) for p, v in step.after.items()}}
        moved = replace(source, versions=MappingProxyType(versions))
        left = safety.failures(step.after)
        mends = tuple(name for name in safety.failures(before) if name not in left)
        stages.append(Stage(step.bump, evidence.nearest(moved, runs), mends))
        before = step.after
    return tuple(stages)


def resolver(python: str) -> Resolver:
    """The resolver itself, as of today; DeepSpeed, which it cannot look into, left out.

    Nothing is built: a plan runs no package's code.
    """
    from trl_compat.environments import EnvironmentFailed, Unresolvable, interpreters, resolving
    from trl_compat.environments.uv import ONLY_WHEELS

    interpreter = interpreters.find(python)
    today = datetime.date.today()
    asked: dict[tuple[tuple[str, Version], ...], str | None] = {}

    def ask(state: Versions) -> str | None:
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
                    f"the package index is out of reach ({error}); plan without it: --offline"
                ) from None
        return asked[key]

    return ask
