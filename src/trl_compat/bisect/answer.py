"""What a bisection answers, as data and in words."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from trl_compat.bisect.advisory_line import Line
from trl_compat.errors import EXIT_FINDINGS, EXIT_OK
from trl_compat.files.models import FrozenModel


class Place(FrozenModel):
    """One candidate with what was seen there.

    Attributes:
        version: the release, or the commit.
        calls_itself: the version that a commit's own metadata names.
        date: of its upload, or of the commit.
        runs: how often it was run.
        unstable: its runs differ; ``outcome`` is that of most.
        command: runs it again.
    """

    package: str
    version: str
    calls_itself: str = ""
    date: str = ""
    stack: str
    outcome: str
    symptom: str = ""
    masked_by: str = ""
    reason: str = ""
    exception: str = ""
    message: str = ""
    where: str = ""
    expected: str = ""
    runs: int = 1
    unstable: bool = False
    moved: tuple[str, ...] = ()
    command: str = ""

    @property
    def named(self) -> str:
        """Package, version and date."""
        version = self.version[:9] if len(self.version) == 40 else self.version
        called = f", {self.calls_itself}" if self.calls_itself else ""
        return f"{self.package} {version} ({self.date or 'date unknown'}{called})"

    @property
    def shows(self) -> str:
        """What was seen there, after a name."""
        match self.outcome:
            case "pass":
                return "passes"
            case "reproduced":
                return f"fails ({self.symptom})" if self.symptom else "fails"
            case "masked" if self.masked_by:
                return f"is masked by {self.masked_by}"
        reason = f" ({self.reason})" if self.reason else ""
        return f"is {self.outcome}{reason}"


class Advice(FrozenModel):
    """What the advisory says of the edge, and what it should."""

    agrees: bool
    lines: tuple[str, ...] = ()
    proposed: tuple[str, ...] = ()


class Answer(FrozenModel):
    """The answer of one search.

    Attributes:
        question: the cell, in words.
        good: the last candidate that shows the good end's outcome; ``bad`` the first of the other.
        between: candidates in between that cannot be judged.
        skipped: those elsewhere in the range.
        also_moved: other packages that differ between the stacks of the two sides.
        candidates: how many there are in the range; ``runs`` how many cells were run for them.
        notes: what a reader should know besides.
        advice: about the advisory; None for commits.
    """

    question: str
    package: str
    good: Place
    bad: Place
    between: tuple[Place, ...] = ()
    skipped: tuple[Place, ...] = ()
    also_moved: tuple[str, ...] = ()
    candidates: int
    tried: int
    runs: int
    notes: tuple[str, ...] = ()
    advice: Advice | None = None
    commits: Answer | None = None
    log: str = ""
    exit_code: int = Field(default=EXIT_OK)

    @property
    def sentence(self) -> str:
        """The edge in one sentence, older candidate first."""
        pair = sorted((self.good, self.bad), key=lambda place: place.date)
        told = [f"{place.named} {place.shows}" for place in pair]
        joined = "with " + ", with ".join(told)
        if not self.between:
            return f"{self.question}: {joined}."
        names = ", ".join(place.version for place in self.between)
        return f"{self.question}: {joined}; not judged between them: {names}."


def exit_code(advice: Advice | None) -> int:
    """Findings if the advisory says otherwise."""
    return EXIT_FINDINGS if advice is not None and not advice.agrees else EXIT_OK


def text(answer: Answer) -> str:
    """The answer for people."""
    lines = [answer.sentence, ""]
    for place in (answer.good, answer.bad):
        lines += [f"  {place.named}: {place.shows}{_runs(place)}"]
        if place.exception:
            lines.append(f"    {place.exception}: {_short(place.message)}")
            lines.append(f"    raised in {place.where}")
        lines.append(f"    {place.command}")
        lines += [f"    moved with it: {move}" for move in place.moved]
    if answer.also_moved:
        lines.append(f"  also differs between them: {', '.join(answer.also_moved)}")
    lines += _listed("  not judged between them:", answer.between)
    lines += _listed("  not judged elsewhere:", answer.skipped)
    kind = "commits" if len(answer.good.version) == 40 else "releases"
    lines.append(
        f"  {answer.tried} of {answer.candidates} {kind} tried, {answer.runs} cells run now"
    )
    lines += [f"  {note}" for note in answer.notes]
    if answer.advice:
        word = "agrees" if answer.advice.agrees else "differs"
        said = "; ".join(answer.advice.lines) or "none of its ranges ends here"
        lines.append(f"  the advisory {word}: {said}")
        lines += [f"    proposed: {line}" for line in answer.advice.proposed]
    if answer.log:
        lines.append(f"  log: {answer.log}")
    if answer.commits:
        lines += ["", "Commits between the two releases:", text(answer.commits).rstrip("\n")]
    return "\n".join(lines) + "\n"


def _runs(place: Place) -> str:
    return f", {place.runs} runs differ: unstable" if place.unstable else f" in {place.runs} runs"


def _listed(title: str, places: Sequence[Place]) -> list[str]:
    return [title, *(f"    {p.named}: {p.shows}" for p in places)] if places else []


def _short(message: str, limit: int = 160) -> str:
    line = " ".join(message.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def proposal(line: Line) -> str:
    """An edit of an advisory in words."""
    if not line.now:
        return f'{line.file}: add a block with {line.package}: "{line.proposed}"'
    return f'{line.file}:{line.line}: {line.package}: "{line.now}" → "{line.proposed}"'
