"""The trainers and options that TRL and transformers ever had: a shipped list.

``shipped/names.json`` is read from the source of released wheels by
``python -m trl_compat.shipped.names FOLDER``, where FOLDER has a wheel of each TRL release
and of some transformers releases (``pip download --no-deps``).  It lets doctor and the gate
distinguish a trainer or an option about which nothing is known from a misspelt one.
"""

from __future__ import annotations

import ast
import json
import sys
import warnings
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from packaging.version import Version

FILE = Path(__file__).with_name("names.json")

BASES = ("Trainer", "BaseTrainer", "BaseSelfDistillationTrainer")
"""Classes that are not used for training."""


@dataclass(frozen=True)
class Trainer:
    """A trainer class of TRL.

    Attributes:
        since: the first release that has it; ``until`` is the last.
        extends: the trainers that it is a subclass of, in any release.
    """

    since: str
    until: str
    extends: tuple[str, ...]

    def is_in(self, trl: Version) -> bool:
        """Whether a release of TRL has it."""
        return Version(self.since) <= trl <= Version(self.until)


@dataclass(frozen=True)
class Names:
    """The list.

    Attributes:
        newest: the newest TRL release that was read.
        trainers: by the name of the class without ``Trainer``.
        options: the fields of TRL's configurations and of ``TrainingArguments``.
    """

    newest: str
    trainers: Mapping[str, Trainer]
    options: frozenset[str]


@cache
def known() -> Names:
    """The list that is shipped."""
    data = json.loads(FILE.read_text(encoding="utf-8"))
    trainers = {
        name: Trainer(one["since"], one["until"], tuple(one["extends"]))
        for name, one in data["trainers"].items()
    }
    return Names(data["newest"], trainers, frozenset(data["options"]))


def of_wheels(wheels: Iterable[Path]) -> Names:
    """The list out of wheels of TRL and transformers."""
    from packaging.utils import parse_wheel_filename

    read = sorted((parse_wheel_filename(path.name)[:2], path) for path in wheels)
    spans: dict[str, list[str]] = {}
    extends: dict[str, set[str]] = {}
    options: set[str] = set()
    newest = ""
    for (name, version), path in read:
        newest = str(version) if name == "trl" else newest
        for class_ in _classes(path, name):
            if name == "trl" and class_.name.endswith("Trainer"):
                _trainer(class_, str(version), spans, extends)
            elif class_.name.endswith(("Config", "TrainingArguments")):
                options.update(_fields(class_))
    trainers = {
        name: Trainer(releases[0], releases[-1], tuple(sorted(extends[name] & set(spans))))
        for name, releases in sorted(spans.items())
    }
    return Names(newest, trainers, frozenset(options))


def _classes(wheel: Path, package: str) -> Iterator[ast.ClassDef]:
    where = f"{package}/" if package == "trl" else "transformers/training_args"
    with zipfile.ZipFile(wheel) as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of escapes in old sources
        for file in archive.namelist():
            if file.startswith(where) and file.endswith(".py"):
                tree = ast.parse(archive.read(file))
                yield from (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef))


def _trainer(
    class_: ast.ClassDef,
    version: str,
    spans: dict[str, list[str]],
    extends: dict[str, set[str]],
) -> None:
    if class_.name.startswith("_") or class_.name in BASES:
        return
    name = class_.name.removesuffix("Trainer")
    spans.setdefault(name, []).append(version)
    bases = {base.id.removeprefix("_") for base in class_.bases if isinstance(base, ast.Name)}
    bases = {base.removesuffix("Trainer") for base in bases if base.endswith("Trainer")}
    extends.setdefault(name, set()).update(bases - {name, ""})


def _fields(class_: ast.ClassDef) -> Iterator[str]:
    for node in class_.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id


def written(names: Names) -> str:
    """The text of the file."""
    data = {**asdict(names), "options": sorted(o for o in names.options if not o.startswith("_"))}
    return json.dumps(data, indent=1) + "\n"


def _main() -> None:
    FILE.write_text(written(of_wheels(Path(sys.argv[1]).glob("*.whl"))), encoding="utf-8")


if __name__ == "__main__":
    _main()
