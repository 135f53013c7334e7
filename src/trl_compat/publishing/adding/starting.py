"""The files of a failure that nobody has described yet, to be filled in.

The shape of a failure decides which files there are.  A loud one has an advisory, a reproduction, a
fix and a module of sabotages.  A silent one violates an invariant, whose cells show it: it has no
reproduction.  One that masks others has an advisory alone.  A fix that is a setting is no module.

Each place to fill in says TODO and what belongs there; until then the record cannot be read.  All
files are written, or none.
"""

from __future__ import annotations

import datetime
import keyword
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from trl_compat.advisories import Phase, Severity
from trl_compat.advisories.invariant import Invariant
from trl_compat.errors import BadInput
from trl_compat.files import documents
from trl_compat.files.names import NAME, require_known
from trl_compat.files.project import Project
from trl_compat.runtime.trainers import HOMES
from trl_compat.shipped import names
from trl_compat.text.nearest import either, plain, unknown_name
from trl_compat.usage import vocabulary

ID = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
# Where the modules of a failure are, by what they are.
MODULES = {
    "reproduction": Path("tests", "reproductions"),
    "fix": Path("src", "trl_compat", "fixes"),
    "sabotage": Path("tests", "harness", "sabotages"),
}


@dataclass(frozen=True)
class Shape:
    """What kind of failure it is.

    Attributes:
        trainer: in which it occurs; empty if in any.
        violates: the invariant that a silent fault violates.
        setting: the fix is another setting, not code.
        masks: it stops the reproductions of other failures.
    """

    trainer: str = ""
    violates: str = ""
    setting: bool = False
    masks: bool = False

    @property
    def modules(self) -> tuple[str, ...]:
        """The kinds of modules that it has."""
        if self.masks:
            return ()
        own = () if self.violates else ("reproduction", "sabotage")
        code = () if self.setting else ("fix",)
        return tuple(kind for kind in MODULES if kind in (*own, *code))


def module_of(failure: str) -> str:
    """The name of a failure's modules."""
    return failure.replace("-", "_")


def files(root: Path, failure: str) -> dict[str, Path]:
    """Where the files of a failure are, or would be, by what they are."""
    module = f"{module_of(failure)}.py"
    advisory = root / "advisories" / f"{failure}.yaml"
    return {"advisory": advisory, **{k: root / folder / module for k, folder in MODULES.items()}}


def start(where: Project, failure: str, shape: Shape, today: datetime.date) -> list[Path]:
    """Writes the files of a failure; gives their paths.

    Raises:
        BadInput: the id or the shape cannot be, the failure exists, or a file cannot be written;
            nothing is written then.
    """
    _check_id(failure)
    _check_places(where, failure)
    _check_shape(shape)
    values = _values(where, failure, shape, today)
    paths = files(where.root, failure)
    wanted = ("advisory", *shape.modules)
    texts = {paths[kind]: _rendered(kind, values) for kind in wanted}
    _write_all(texts)
    return list(texts)


def _check_id(failure: str) -> None:
    if not ID.fullmatch(failure) or not NAME.fullmatch(failure):
        raise BadInput(
            f"'{failure[:100]}' is no id: write lower-case words with hyphens between them, a "
            "letter first, 64 characters at most, as ppo-zero3-save"
        )
    if keyword.iskeyword(module_of(failure)):
        raise BadInput(f"'{failure}' is a word of Python and cannot be a module; add another word")


def _check_places(where: Project, failure: str) -> None:
    folders = (where.advisories, where.invariants, *(where.root / f for f in MODULES.values()))
    for folder in folders:
        if not folder.is_dir():
            raise BadInput(f"{folder}: not found; run this command in a checkout of trl-compat")
    taken = (*files(where.root, failure).values(), where.invariants / f"{failure}.yaml")
    for path in taken:
        if path.exists() or path.is_symlink():
            place = path.relative_to(where.root).as_posix()
            raise BadInput(f"'{failure}' is taken: {place} exists; nothing was written")


def _check_shape(shape: Shape) -> None:
    if shape.masks and shape.violates:
        raise BadInput("--masks and --violates: a silent fault stops no scenario; leave one out")
    if shape.masks and shape.setting:
        raise BadInput("--masks and --setting: no cell tries the fix of a mask; leave one out")


def _values(
    where: Project, failure: str, shape: Shape, today: datetime.date
) -> Mapping[str, object]:
    """What the templates are filled with."""
    trainer = _trainer(shape.trainer) if shape.trainer else ""
    return {
        "id": failure,
        "module": module_of(failure),
        "today": today.isoformat(),
        "violates": shape.violates,
        "measured": _measured(where, shape.violates) if shape.violates else {},
        "setting": shape.setting,
        "masks": shape.masks,
        "conditions": f"trainer: {trainer}" if trainer else "",
        "home": trainer in HOMES,
        "class_name": _class_name(trainer),
        "severities": either(Severity),
        "phases": either(Phase),
    }


def _trainer(name: str) -> str:
    """A trainer as records spell it.

    Raises:
        BadInput: no release of TRL has it.
    """
    words = vocabulary.shipped()
    if found := words.trainer(name):
        return found
    raise BadInput(unknown_name("trainer", name, set(words.trainers.values())))


def _class_name(trainer: str) -> str:
    """The name of a trainer's class without ``Trainer``."""
    same = (one for one in names.known().trainers if plain(one) == plain(trainer))
    return next(same, "")


def _measured(where: Project, invariant: str) -> dict[str, str]:
    """What an invariant measures, each with its meaning in one line.

    Raises:
        BadInput: there is no such invariant, or it cannot be read.
    """
    paths = {path.stem: path for path in sorted(where.invariants.glob("*.yaml"))}
    require_known("invariant", [invariant], paths)
    record = documents.load(paths[invariant], Invariant)
    return {name: " ".join(meaning.split()) for name, meaning in record.measured.items()}


def _rendered(kind: str, values: Mapping[str, object]) -> str:
    ending = "yaml" if kind == "advisory" else "py"
    return _environment().get_template(f"{kind}.{ending}.j2").render(values)


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("trl_compat.publishing.adding"),
        autoescape=False,  # YAML and Python; the values are names that were checked
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def _write_all(texts: Mapping[Path, str]) -> None:
    """Writes files that are not there yet; removes them again if one cannot be written.

    Raises:
        BadInput: one cannot be written.
    """
    made: list[Path] = []
    try:
        for path, text in texts.items():
            with path.open("x", encoding="utf-8") as file:
                made.append(path)
                file.write(text)
    except OSError as error:
        for path in made:
            path.unlink(missing_ok=True)
        raise BadInput(f"{path}: {error.strerror}; nothing was written") from None
