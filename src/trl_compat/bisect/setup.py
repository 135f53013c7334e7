"""From the user's words to a bisection that can begin: its base stack, its pins and its cell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from packaging.version import Version

from trl_compat.advisories import Catalogue
from trl_compat.bisect.candidates import Span, release, require_package
from trl_compat.bisect.question import Question, Wanted
from trl_compat.bisect.search import Side
from trl_compat.cells.expectations import expect
from trl_compat.cells.outcome import Outcome
from trl_compat.errors import BadInput
from trl_compat.files.names import require_known
from trl_compat.packages import PACKAGES
from trl_compat.shipped.releases import Releases
from trl_compat.stacks.matrix import Matrix, Stack
from trl_compat.text.nearest import unknown_name

UNFIXED = "none"
NEAREST = "nearest"


@dataclass(frozen=True, kw_only=True)
class CellRequest:
    """The cell that is asked about, in the user's words; see the command's options."""

    failure: str
    variant: str | None = None
    model: str | None = None
    world_size: int = 2
    device: str = "cpu"
    fix: str | None = None
    good_outcome: str = "pass"
    bad_outcome: str = "reproduced"


def check_failure(catalogue: Catalogue, failure: str) -> None:
    """Refuses a failure that cannot be bisected.

    Raises:
        BadInput: there is no such failure, or it has no reproduction of its own.
    """
    if failure in catalogue.subjects:
        return
    if failure in catalogue.records:
        raise BadInput(
            f"{failure} has no reproduction of its own; bisect a failure that it masks, with "
            f"--outcome masked:{failure}"
        )
    raise BadInput(unknown_name("failure", failure, catalogue.subjects))


def base_stack(
    table: Matrix, wanted: str | None, span: Span, version: str, known: Releases
) -> tuple[str, Stack]:
    """The stack around a release of the moved package.

    Args:
        table: the matrix.
        wanted: its name; ``nearest`` for the stack whose release is nearest to this one; None for
            one that has the release of an end, or else the nearest to the bad end, for them all.
        span: the releases.
        version: the release.
        known: the releases that there are.

    Raises:
        BadInput: there is none, or it cannot be one.
    """
    if wanted not in (None, NEAREST):
        require_known("stack", [wanted], table.stacks)
        stack = table.stacks[wanted]
        refuse(wanted, stack, "--stack")
        return wanted, stack
    usable = {
        name: stack
        for name, stack in table.stacks.items()
        if not why_not(stack) and not stack.only and not getattr(stack, "grid", "")
    }
    if not usable:
        raise BadInput("the matrix has no stack of releases that could be a base; name a --stack")
    ends = () if wanted else (span.versions[-1], span.versions[0])
    target = Version(version if wanted else span.versions[-1])

    def far(item: tuple[str, Stack]) -> tuple[int, int]:
        found = item[1].version(span.package)
        assert found is not None
        is_end = ends.index(str(found)) if str(found) in ends else len(ends)
        between = [
            v for v in known.final(span.package) if min(found, target) < v < max(found, target)
        ]
        return is_end, len(between) + (found != target)

    return min(usable.items(), key=far)


def why_not(stack: Stack) -> str:
    """Why a stack cannot be a base; empty if it can."""
    if any(stack.commit(package) for package in PACKAGES):
        return "takes a package from a git commit"
    return "is given by a lock" if stack.lock is not None else ""


def refuse(name: str, stack: Stack, option: str) -> None:
    """Refuses a stack that cannot be a base.

    Raises:
        BadInput: it cannot.
    """
    if why := why_not(stack):
        raise BadInput(f"{option} {name}: it {why}; name a stack of releases")


def holds(texts: Sequence[str], moved: str, known: Releases) -> dict[str, str]:
    """The pins of the user.

    Raises:
        BadInput: one is none, names no release, or names what is moved.
    """
    found: dict[str, str] = {}
    for text in texts:
        package, equals, version = text.partition("==")
        if not equals or not version:
            raise BadInput(f"--hold {text}: write PACKAGE==VERSION, e.g. transformers==4.46.3")
        require_package(package)
        if package == moved:
            raise BadInput(f"--hold {text}: {package} is what is moved")
        if package in found:
            raise BadInput(f"--hold {text}: {package} is already held at {found[package]}")
        found[package] = str(release(package, version, known, "--hold"))
    return found


def question_of(
    catalogue: Catalogue, table: Matrix, asked: CellRequest, ends: Mapping[Side, Stack]
) -> Question:
    """The cell that is asked about.

    Raises:
        BadInput: a name is not known.
    """
    reproduction = catalogue.reproduction(asked.failure)
    if asked.variant is not None:
        require_known("variant", [asked.variant], reproduction.variants)
    if asked.model is not None:
        require_known("model", [asked.model], table.models)
    usual = "tiny-qwen2" if "tiny-qwen2" in table.models else table.models[0]
    question = Question(
        failure=asked.failure,
        variant="",
        model=asked.model or usual,
        world_size=asked.world_size,
        device=asked.device,
        fix=asked.fix or UNFIXED,
        good=Wanted.read(asked.good_outcome),
        bad=Wanted.read(asked.bad_outcome),
    )
    for wanted in (question.good, question.bad):
        _check_name(catalogue, asked.failure, wanted)
    if question.good == question.bad:
        raise BadInput(f"both ends are to be {question.bad}: nothing tells them apart")
    offered = [*reproduction.default, *(v for v in reproduction.variants)]
    chosen = asked.variant or next(
        (v for v in offered if _predicted(catalogue, question, v, ends)), offered[0]
    )
    return Question(**{**vars(question), "variant": chosen})


def _check_name(catalogue: Catalogue, failure: str, wanted: Wanted) -> None:
    if wanted.name and wanted.outcome is Outcome.REPRODUCED:
        require_known("symptom", [wanted.name], catalogue[failure].symptoms)
    elif wanted.name:
        require_known("failure", [wanted.name], [mask.id for mask in catalogue.masks])


def _predicted(
    catalogue: Catalogue, question: Question, variant: str, ends: Mapping[Side, Stack]
) -> bool:
    """Whether the advisories predict for both ends what is looked for there."""
    advisory = catalogue[question.failure]
    return all(
        question.side(expect(stack, advisory, variant, catalogue.masks, None, question.device))
        is side
        for side, stack in ends.items()
    )
