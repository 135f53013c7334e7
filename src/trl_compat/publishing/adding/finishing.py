"""What is left to do on a record that is filled in.

:func:`require_filled_in` refuses one that is not.  :func:`conclude` compiles and lints what a run
of its cells has left and says what is missing; the reports were rendered by the run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from trl_compat.advisories import Advisory, Catalogue
from trl_compat.advisories.invariant import whose
from trl_compat.cells.expectations import trials
from trl_compat.cells.outcome import Outcome
from trl_compat.errors import BadInput
from trl_compat.files.project import Project
from trl_compat.files.reading import text_of
from trl_compat.files.writing import write_atomically
from trl_compat.publishing import compiled
from trl_compat.publishing.adding import observed, starting, todo
from trl_compat.publishing.adding.observed import Observed
from trl_compat.publishing.checking import check, yaml_edit
from trl_compat.publishing.checking.check import Checked
from trl_compat.publishing.lint import Complaint, lint
from trl_compat.report import counts
from trl_compat.results import Results
from trl_compat.shipped import releases
from trl_compat.text.nearest import unknown_name

# The errors that cells really raised, for the tests of the symptoms.
ERRORS = Path("tests", "harness", "observed")
MASKS = Path("tests", "harness", "recorded_errors")


@dataclass(frozen=True)
class Conclusion:
    """What is to be said in the end.

    Attributes:
        complaints: of the lint, about this record.
        contradictions: how many there are between the record and the results.
        missing: what is still to be done, as parts of a sentence.
    """

    complaints: tuple[Complaint, ...]
    contradictions: int
    missing: tuple[str, ...]

    @property
    def in_order(self) -> bool:
        """Whether nothing is wrong, though something may be missing."""
        return not self.contradictions and all(c.level != "error" for c in self.complaints)

    def sentence(self, failure: str) -> str:
        """What is missing, or that nothing is."""
        if not self.missing:
            return f"{failure}: nothing is missing"
        return f"{failure}: still missing: {'; '.join(self.missing)}"


def require_filled_in(where: Project, failure: str) -> None:
    """Refuses a record that is not there, or that has places left to fill in.

    Raises:
        BadInput: the text names the first place, and says how many there are.
    """
    known = [path.stem for path in where.advisories.glob("*.yaml")]
    if failure not in known:
        near = unknown_name("failure", failure, known)
        raise BadInput(f"{near}; a new one is begun with: trl-compat advisories new ID")
    _refuse_todos(where, starting.files(where.root, failure).values())


def require_filled_in_modules(where: Project, record: Advisory) -> None:
    """Refuses a record whose modules, under other names than its own, have places to fill in.

    Raises:
        BadInput: as above; or the record is withdrawn.
    """
    if record.withdrawn:
        raise BadInput(f"{record.id} was withdrawn on {record.withdrawn}; nothing is to be done")
    names = [record.reproduction.module] if record.reproduction else []
    modules = [fix.entry.partition(":")[0] for fix in record.fixes if fix.entry]
    names += [name.rpartition(".")[2] for name in modules if name.startswith("trl_compat.fixes.")]
    folders = [where.root / folder for folder in starting.MODULES.values()]
    _refuse_todos(where, (folder / f"{name}.py" for name in names for folder in folders))


def _refuse_todos(where: Project, paths: Iterable[Path]) -> None:
    left = list(todo.left(paths))
    if left:
        first = left[0]
        more = f" (and {len(left) - 1} more)" if len(left) > 1 else ""
        raise BadInput(f"{first.place(where.root)}: still to be filled in: {first.sentence}{more}")


def fill_in(where: Project, record: Advisory, found: Sequence[Observed]) -> list[str]:
    """Writes into a record what its cells raised, in place of ``observe``; says what it wrote.

    Raises:
        BadInput: the text cannot be edited.
    """
    replacements = observed.to_write(record, found)
    if not replacements:
        return []
    path = where.advisories / f"{record.id}.yaml"
    write_atomically(path, yaml_edit.with_values(text_of(path), path, replacements))
    return [f"{one.place}: {one.keys[-1]}: {one.after}" for one in replacements]


def conclude(where: Project, catalogue: Catalogue, document: Results, failure: str) -> Conclusion:
    """Compiles what doctor reads, checks the record, and says what is missing."""
    compiled.write(compiled.folder_in(where.root), catalogue, document)
    known = releases.known()
    complaints = [
        complaint
        for complaint in lint(catalogue, known, document, where.reproductions)
        if complaint.failure == failure
    ]
    (checked,) = check.check(document, catalogue, known, (failure,))
    return Conclusion(
        tuple(complaints),
        len(checked.contradictions),
        tuple(_missing(where, catalogue.records[failure], document, checked)),
    )


def _missing(
    where: Project, record: Advisory, document: Results, checked: Checked
) -> Iterator[str]:
    if not checked.showing:
        yield "a cell that shows it"
    if count := len(checked.open):
        edges = f"runs on both sides of {count} edge{'s' if count > 1 else ''}"
        yield f"{edges} (trl-compat advisories check --failure {record.id})"
    yield from _unproven(record, document)
    if record.reproduction and not (where.root / ERRORS / f"{record.id}.json").is_file():
        yield f"the recorded errors of its symptoms (python -m tests.harness.observe {record.id})"
    if record.masks and not (where.root / MASKS / f"{record.id}.json").is_file():
        yield f"a recorded error ({(MASKS / f'{record.id}.json').as_posix()})"


def _unproven(record: Advisory, document: Results) -> Iterator[str]:
    """Fixes that no cell has proven, and wrong ones that none has refuted."""
    violated = {symptom.violates for symptom in record.symptoms.values()}
    subjects = {record.id} if record.reproduction else {name for name in violated if name}
    cells = [cell for cell in document.cells if cell.failure in subjects and cell.fixed]
    for fix in trials(record.fixes):
        mine = [c for c in cells if c.fix == fix.name]
        if subjects and not counts.count(mine, Outcome.PASS).shown:
            yield f"a cell that proves the fix '{fix.name}'"
    for wrong in record.wrong_fixes:
        mine = [c for c in cells if c.fix == wrong.name and whose(c.symptom) in (None, record.id)]
        if subjects and not counts.count(mine, Outcome.REPRODUCED).shown:
            yield f"a cell that refutes the wrong fix '{wrong.name}'"
