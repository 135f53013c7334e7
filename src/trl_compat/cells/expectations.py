"""The outcome that the advisories predict for a cell; the only place where predictions are made.

Version ranges name releases.  They do not apply to a git commit, so where only a range could
decide, nothing is predicted, unless an advisory of the failure names this commit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict

from trl_compat.advisories import STANDALONE, Advisory, Fix, FixBase, Phase, Scope, WrongFix
from trl_compat.cells.outcome import Outcome
from trl_compat.packages import PACKAGES
from trl_compat.ranges import Answer, HasVersions, outside
from trl_compat.runtime.needs import lacking


class Expectation(BaseModel):
    """The predicted outcome, with the symptom or the mask that makes it so.

    Attributes:
        outcome: None where nothing is predicted; such a cell cannot deviate.
        or_masked_by: what may stop a cell that is not applicable before it finds that out.
        may_be_unresolvable: a rule has made the stack, and that there is none is a result.
    """

    model_config = ConfigDict(frozen=True)

    outcome: Outcome | None
    symptom: str | None = None
    masked_by: str | None = None
    or_masked_by: tuple[str, ...] = ()
    may_be_unresolvable: bool = False


@dataclass(frozen=True)
class Trial:
    """A remedy as one cell tries it: by its entry, or by the text that does without this package.

    Both must do what the advisory says, each in a cell of its own.
    """

    remedy: FixBase
    standalone: str = ""

    @property
    def name(self) -> str:
        """What the cell and the reports call it."""
        return standalone_name(self.remedy.name) if self.standalone else self.remedy.name

    @property
    def entry(self) -> str | None:
        """``module:function`` to call; None where the text is executed."""
        return None if self.standalone else self.remedy.entry


def standalone_name(fix: str) -> str:
    """The name under which the standalone form of a fix is tried."""
    return f"{fix}{STANDALONE}"


def trials(remedies: Sequence[FixBase]) -> Iterator[Trial]:
    """Every remedy, and after each fix its standalone form."""
    for remedy in remedies:
        yield Trial(remedy)
        if isinstance(remedy, Fix) and remedy.standalone:
            yield Trial(remedy, remedy.standalone)


def expect(
    stack: HasVersions,
    advisory: Advisory,
    variant: str,
    masks: Sequence[Advisory],
    fix: FixBase | None = None,
    device: str = "cpu",
) -> Expectation:
    """The outcome that the advisories predict for a cell; its device counts as a condition."""
    return with_fix(unfixed(stack, advisory, variant, masks, device), fix)


def with_fix(before: Expectation, fix: FixBase | None) -> Expectation:
    """What is predicted with a fix, from what is predicted without."""
    if fix is None or before.outcome not in (Outcome.REPRODUCED, Outcome.PASS):
        return before
    outcome = Outcome.REPRODUCED if isinstance(fix, WrongFix) else Outcome.PASS
    symptom = fix.symptom if isinstance(fix, WrongFix) else None
    return before.model_copy(update={"outcome": outcome, "symptom": symptom})


def unfixed(
    stack: HasVersions,
    advisory: Advisory,
    variant: str,
    masks: Sequence[Advisory],
    device: str = "cpu",
) -> Expectation:
    """What is predicted for a cell without a fix."""
    assert advisory.reproduction is not None
    conditions = {**advisory.reproduction.conditions_of(variant), "device": device}
    told = _Told(stack, conditions, _named(stack, advisory), _has_commit(stack))
    if lacking(conditions, lambda package: not stack.absent(package)):
        return Expectation(outcome=Outcome.NOT_APPLICABLE)
    if outside(advisory.available, stack) or any(told.covers(a) for a in advisory.absent):
        # What stops an import may come before the cell finds out that there is nothing to run.
        first = (m for m in masks if m.phase is Phase.IMPORT and m.id != advisory.id)
        found = (mask.id for mask in first if any(told.covers(scope) for scope in mask.affected))
        return Expectation(outcome=Outcome.NOT_APPLICABLE, or_masked_by=tuple(found))
    if told.undecided(Scope(versions=advisory.available), *advisory.absent):
        return Expectation(outcome=None)
    for mask in masks:
        if mask.id != advisory.id and any(told.covers(scope) for scope in mask.affected):
            return Expectation(outcome=Outcome.MASKED, masked_by=mask.id)
        if mask.id != advisory.id and told.undecided(*mask.affected):
            return Expectation(outcome=None)
    symptom = next((a.symptom for a in advisory.affected if told.covers(a)), None)
    if symptom is None and told.undecided(*advisory.affected):
        return Expectation(outcome=None)
    outcome = Outcome.REPRODUCED if symptom else Outcome.PASS
    return Expectation(outcome=outcome, symptom=symptom)


@dataclass(frozen=True)
class _Told:
    """What scopes say of a stack under some conditions.

    Attributes:
        has_commit: whether the stack has a git commit; without one, ranges decide everything.
        known: the packages whose git commit the failure's record names.
    """

    stack: HasVersions
    conditions: Mapping[str, Any]
    known: frozenset[str]
    has_commit: bool

    def covers(self, scope: Scope) -> bool:
        """Whether the stack lies in the scope."""
        return scope.covers(self.stack, self.conditions)

    def undecided(self, *scopes: Scope) -> bool:
        """Whether a range of one of the scopes is all that decides, and is asked of a commit."""
        return self.has_commit and any(
            scope.answer(self.stack, self.conditions, self.known) is Answer.UNKNOWN
            for scope in scopes
        )


def _has_commit(stack: HasVersions) -> bool:
    return any(stack.commit(package) for package in PACKAGES)


def _named(stack: HasVersions, advisory: Advisory) -> frozenset[str]:
    """The packages of which the stack has a git commit that the advisory names."""
    commits = [scope.commits for scope in (*advisory.affected, *advisory.absent)]
    commits += [remedy.commits for remedy in (*advisory.fixes, *advisory.wrong_fixes)]
    return frozenset(
        package
        for named in commits
        for package, one in named.items()
        if Scope(commits={package: one}).covers(stack, {})
    )


def applicable_fixes(stack: HasVersions, advisory: Advisory, variant: str) -> list[FixBase]:
    """Fixes, right and wrong, that exist in this stack and variant."""
    assert advisory.reproduction is not None
    conditions = advisory.reproduction.conditions_of(variant)
    remedies: tuple[FixBase, ...] = (*advisory.fixes, *advisory.wrong_fixes)
    return [
        fix
        for fix in remedies
        if (not fix.variants or variant in fix.variants)
        and Scope(versions=fix.versions, commits=fix.commits, conditions=fix.only).covers(
            stack, conditions
        )
    ]
