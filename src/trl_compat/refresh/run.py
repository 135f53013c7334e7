"""One refresh, and one replay of the past: what is asked, what is written, what is run.

Everything that can be refused is refused before the first file is written.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from trl_compat import advisories
from trl_compat.advisories import Catalogue
from trl_compat.errors import EXIT_FINDINGS, EXIT_OK, BadInput
from trl_compat.files import documents
from trl_compat.files.names import require_known
from trl_compat.files.project import Project
from trl_compat.files.reading import text_of
from trl_compat.files.writing import write_atomically
from trl_compat.refresh import (
    comparison,
    days,
    edit,
    holding,
    index,
    proposal,
    replay,
    replay_text,
    summary,
)
from trl_compat.refresh.comparison import StackDifference
from trl_compat.refresh.days import Day
from trl_compat.refresh.proposal import Proposal
from trl_compat.results import Results
from trl_compat.shipped import releases as shipped
from trl_compat.stacks import matrix
from trl_compat.stacks.matrix import Matrix, Stack
from trl_compat.text import diff
from trl_compat.text.markdown import block, code, inline

if TYPE_CHECKING:  # proposing needs nothing of what runs cells
    from trl_compat.running.matrix_run import Options


@dataclass(frozen=True)
class Request:
    """What is asked.

    Attributes:
        holds: as ``--hold`` has them.
        failures: only these; empty for those of the default profile.
        today: the day of the index.
        index: the address of a package's document, with ``{package}``.
        write: the proposed stacks are added to the matrix file.
        step: so many days of a replay are taken together at first.
    """

    holds: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()
    models: tuple[str, ...] = ("tiny-qwen2",)
    device: str = "cpu"
    today: datetime.date = field(default_factory=lambda: datetime.datetime.now(datetime.UTC).date())
    index: str = shipped.INDEX
    write: bool = False
    step: int = 1


@dataclass(frozen=True)
class Told:
    """The Markdown of an answer, and the exit code."""

    text: str
    exit_code: int = EXIT_OK


def refresh(where: Project, request: Request, options: Options | None) -> Told:
    """Updates the lists, proposes stacks, writes them if asked, and runs them if it is said how.

    Raises:
        BadInput: the matrix, the index, or something given is wrong; nothing was written.
        HarnessError: cells have no record.
        KeyboardInterrupt: the user interrupted the run.
    """
    folder = index.lists(where.root)
    table, catalogue = _read(where, request)
    found = index.ask(request.today.isoformat(), request.index)
    held = holding.parse(request.holds, found.releases)
    asked = proposal.propose(table, found.releases, request.today, held)
    before = text_of(where.matrix_file)
    after = edit.with_stacks(before, where.matrix_file, asked.stacks) if asked.stacks else before
    _check(after, where.matrix_file)
    index.write(folder, found)
    if request.write and after != before:
        write_atomically(where.matrix_file, after)
    differences = {}
    if options is not None and asked.stacks:
        differences = _compare(where, table, catalogue, asked, request, options)
    text = summary.render(
        asked, differences, ran=options is not None, as_of=found.releases.as_of
    ) + _edit(where, before, after, written=request.write)
    text += "".join(f"\n{inline(one)}: declares no requirements.\n" for one in found.silent)
    flagged = any(one.flagged for one in differences.values())
    return Told(text, EXIT_FINDINGS if flagged else EXIT_OK)


def _read(where: Project, request: Request) -> tuple[Matrix, Catalogue]:
    table = matrix.load(where.matrix_file)
    catalogue = advisories.load(where.advisories, where.reproductions)
    require_known("failure", request.failures, catalogue.subjects)
    require_known("model", request.models, table.models)
    if not request.failures and "default" not in table.profiles:
        raise BadInput(f"{where.matrix_file}: has no profile 'default'; name failures: --failure")
    return table, catalogue


def _check(text: str, path: Path) -> None:
    """Refuses an edit after which the file would be broken; that would be an error of ours."""
    try:
        Matrix.model_validate(documents.yaml_of(text, path))
    except ValidationError as error:
        raise BadInput(f"{path}: stacks cannot be added to it ({error})") from None


def _compare(
    where: Project,
    table: Matrix,
    catalogue: Catalogue,
    asked: Proposal,
    request: Request,
    options: Options,
) -> dict[str, StackDifference]:
    from trl_compat.refresh import trial

    stacks = {asked.base: table.stacks[asked.base]}
    stacks |= {one.name: one.stack for one in asked.stacks}
    document = trial.run(
        where,
        catalogue,
        _matrix_of(table, catalogue, stacks, request),
        "proposed",
        options,
        request.device,
    )
    if reason := comparison.not_installable(document, asked.base):
        raise BadInput(
            f"{asked.base}, the newest stack that is known, cannot be installed, so there is "
            f"nothing to compare with: {reason}"
        )
    return {one.name: comparison.compare(document, asked.base, one.name) for one in asked.stacks}


def _matrix_of(
    table: Matrix, catalogue: Catalogue, stacks: dict[str, Stack], request: Request
) -> Matrix:
    from trl_compat.refresh import trial

    failures = request.failures or trial.failures_of(table, "default", catalogue)
    return trial.matrix_of(table, stacks, failures, request.models)


def _edit(where: Project, before: str, after: str, *, written: bool) -> str:
    if before == after:
        return ""
    name = where.matrix_file.name
    head = (
        f"Added to {code(name)}:" if written else f"Proposed for {code(name)} (`--write` adds it):"
    )
    return "\n".join(["", head, "", *block(diff.unified(name, before, after), "diff"), ""])


def replayed(
    where: Project,
    first: datetime.date,
    last: datetime.date,
    request: Request,
    options: Options,
) -> Told:
    """Runs the stacks of the past and holds what they flag against what is known today.

    Raises:
        BadInput: the days are in the wrong order or not in the list of releases, or something else
            that was given is wrong; nothing was run.
        HarnessError: cells have no record.
        Stopped: the user interrupted the run; it has the text of what was finished, and the same
            command goes on.
    """
    from trl_compat.refresh import trial

    table, catalogue = _read(where, request)
    listed = shipped.known()
    held = holding.parse(request.holds, listed)
    start, daily = days.days(first, last, listed, held)
    if not any(day.moved for day in daily):
        raise BadInput(f"--replay {first} {last}: nothing was released in these days")
    name = days.stack_name(first - datetime.timedelta(days=1))

    def ran(found: list[Day]) -> Results:
        stacks = {name: start, **dict(replay.later_stacks(found))}
        wanted = _matrix_of(table, catalogue, stacks, request)
        return trial.run(where, catalogue, wanted, "replay", options, request.device)

    about = _about(_matrix_of(table, catalogue, {name: start}, request), held, request.step)

    def account(found: list[Day], document: Results) -> list[replay.Account]:
        if reason := comparison.not_installable(document, name):
            raise BadInput(f"{name}, the stack before {first}, cannot be installed: {reason}")
        return replay.accounts(start, name, found, document, catalogue)

    def text(told: list[replay.Account], document: Results) -> str:
        return replay_text.render(told, replay.totals(told, document), f"{first} to {last}", about)

    groups = days.groups_of(daily, request.step)
    found = days.joined(start, groups)
    try:
        document = ran(found)
        told = account(found, document)
        flagged = {one.day.date for one in told if one.compared and one.compared.flagged}
        if any(len(group) > 1 and group[-1].date in flagged for group in groups):
            # What newly fails within a group is looked for day by day.
            single = [g if g[-1].date in flagged else [days.as_one(g)] for g in groups]
            found = days.joined(start, [[day] for group in single for day in group])
            document = ran(found)
            told = account(found, document)
    except trial.Interrupted as stopped:
        half = account(found, stopped.document)
        raise Stopped(text(half, stopped.document)) from None
    return Told(text(told, document))


class Stopped(KeyboardInterrupt):
    """A replay was interrupted; ``text`` is about what was finished."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text


def _about(table: Matrix, held: holding.Holds, step: int) -> str:
    (select,) = table.profiles["refresh"].select
    parts = ["Each stack has everything newest on its day, resolved as of that day"]
    if step > 1:
        parts.append(
            f"up to {step} days are taken together, and run day by day where something newly fails"
        )
    for package, versions in held.items():
        names = ", ".join(map(str, versions))
        parts.append(
            f"{package} is held to {names} (the newest of them that was out, else the oldest)"
        )
    failures = ", ".join(map(code, select.failures))
    parts.append(f"failures: {failures}")
    parts.append(
        f"unfixed cells and controls of the default variants, {inline(', '.join(select.models))}"
    )
    return "; ".join(parts) + "."
