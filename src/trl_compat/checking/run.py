"""A check: from an interpreter to results, by the run path of the matrix.

The environment becomes a matrix of one stack, so that everything else (isolation, limits, records,
reports, verdicts) is that of :mod:`trl_compat.running`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from trl_compat import advisories, results
from trl_compat.advisories import Catalogue
from trl_compat.cells.plan import Selection
from trl_compat.checking import importing
from trl_compat.checking.examining import Found, examine
from trl_compat.errors import EXIT_INTERRUPTED, HarnessError
from trl_compat.files import project
from trl_compat.files.project import Project
from trl_compat.files.writing import write_atomically
from trl_compat.machine import gpus
from trl_compat.machine.gpus import Gpu
from trl_compat.packages import SHOWN_PACKAGES
from trl_compat.running import matrix_run
from trl_compat.runtime.preload import STACK
from trl_compat.stacks.environments import damage
from trl_compat.stacks.in_place import environment
from trl_compat.stacks.matrix import Matrix, Profile, Selector

DEFAULT, FULL = "default", "full"
PROFILES = (DEFAULT, FULL)
USUAL_MODEL = "tiny-qwen2"


@dataclass(frozen=True)
class Ready:
    """An environment that can be checked, and where that is done.

    Attributes:
        usable: the GPUs that its torch can use.
    """

    where: Project
    catalogue: Catalogue
    found: Found
    usable: tuple[Gpu, ...] = ()

    def device(self, wanted: str, ranks: int, *, share: bool = False) -> str:
        """``cuda`` if it is requested, or if that is free and there is a GPU for each rank.

        The GPUs that are taken are all that this process and its workers see from then on.

        Raises:
            BadInput: too few GPUs for what is wanted, or something else fills them.
        """
        has = f"torch {self.found.stack.torch} there can use"
        device, names = gpus.choose(wanted, ranks, self.usable, share=share, has=has)
        if names:
            gpus.take(names)
        return device

    def lines(self) -> list[str]:
        """What is checked, for people."""
        stack = self.found.stack
        there = [f"{p} {getattr(stack, p)}" for p in SHOWN_PACKAGES if getattr(stack, p)]
        absent = [p for p in SHOWN_PACKAGES if not getattr(stack, p)]
        without = f"; without {' and '.join(absent)}" if absent else ""
        return [
            f"{self.found.record.python}: Python {stack.python}, {', '.join(there)}{without}",
            *(f"note: {note}" for note in self.found.notes),
        ]


def prepare(python: Path, root: Path, reports: Path, *, with_gpus: bool) -> Ready:
    """Reads an environment and sees whether cells can run in it; runs none.

    Args:
        python: its interpreter.
        root: a checkout of trl-compat, or any folder: then the package's own records are used.
        reports: where results are written.
        with_gpus: whether GPUs are of interest.

    Raises:
        BadInput: no cell can run there; says why.
    """
    reports = reports.resolve()
    state = reports / ".state"
    # There is no matrix file; what is at this place would be that of another matrix than ours.
    where = Project(project.available(root.resolve()), state / "none.yaml", reports, state)
    catalogue = advisories.load(where.advisories, where.reproductions)
    results.read(reports / "results.json")  # a broken one is said before anything is run
    found = examine(python, where.state)
    visible = tuple(gpus.visible()) if with_gpus else ()
    imported = found.record.listing.with_name("imported")
    if imported.is_file() and not visible:
        return Ready(where, catalogue, found)
    there = [name for name in STACK if name in found.record.packages]
    seen = importing.imports(found.record, there, tuple(gpu.name for gpu in visible))
    packages = found.record.packages
    importing.refuse_broken(f"--python {python}", seen, catalogue.masks, packages)
    write_atomically(imported, "")
    return Ready(where, catalogue, found, visible[: seen.gpus])


def run(
    ready: Ready, selection: Selection, options: matrix_run.Options, say: Callable[[str], None]
) -> int:
    """Runs a selection of cells in an environment, writes its reports, and gives the exit code.

    Raises:
        BadInput: anything wrong in the names that were given.
        HarnessError: the environment changed meanwhile, or cells have no record.
    """
    table = _matrix(ready)
    ran = matrix_run.run(ready.where, table, ready.catalogue, selection, options)
    document = matrix_run.write(ran)
    ran.show_end(document)
    say(compare(ready))
    if ran.interrupted:
        return EXIT_INTERRUPTED
    ran.check_complete()
    return matrix_run.exit_code(ran.cells(document))


def compare(ready: Ready) -> str:
    """Says that the environment is as it was when it was examined.

    Raises:
        HarnessError: it is not.
    """
    changed = environment.changes(ready.found.record, contents=True)
    if serious := environment.without_bytecode(changed):
        raise HarnessError(
            f"the environment changed while it was checked ({damage.sentence(serious)}); "
            "run the same command again, with nothing else that installs there"
        )
    return _unchanged(ready.found.files, changed)


def _unchanged(files: int, compiled: Sequence[str]) -> str:
    if compiled:
        return (
            f"nothing in the environment changed but bytecode ({damage.sentence(compiled)}): "
            "another program that uses it has compiled modules"
        )
    return f"nothing in the environment changed ({files} files compared)"


def _matrix(ready: Ready) -> Matrix:
    models = project.model_names(ready.where)
    usual = (USUAL_MODEL,) if USUAL_MODEL in models else models[:1]
    return Matrix(
        models=models,
        stacks={ready.found.name: ready.found.stack},
        profiles={
            DEFAULT: Profile(
                about="what each advisory and each invariant names as its default, with one model",
                select=(Selector(models=usual), Selector(models=usual, invariants=("all",))),
            ),
            FULL: Profile(
                about="every variant with every model",
                select=(
                    Selector(variants=("all",)),
                    Selector(variants=("all",), invariants=("all",)),
                ),
            ),
        },
    )
