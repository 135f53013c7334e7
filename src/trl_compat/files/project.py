"""Where the parts of a checkout are, and whether its tiny models are unchanged."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from trl_compat.errors import BadInput

SHIPPED = Path(__file__).parents[1] / "shipped"


@dataclass(frozen=True)
class Project:
    """The folders of a checkout of trl-compat.

    ``state`` holds what was observed on this machine; ``reports`` what is made from it.
    """

    root: Path
    matrix_file: Path
    reports: Path
    state: Path

    @property
    def advisories(self) -> Path:
        """One YAML file per failure."""
        return self.root / "advisories"

    @property
    def invariants(self) -> Path:
        """One YAML file per invariant."""
        return self.root / "invariants"

    @property
    def reproductions(self) -> Path:
        """One module per failure."""
        return self.root / "tests" / "reproductions"

    @property
    def models(self) -> Path:
        """The tiny models."""
        return self.root / "tiny_models"


def at(root: Path, *, matrix: Path | None = None, reports: Path | None = None) -> Project:
    """The project in a folder.

    Args:
        root: the checkout.
        matrix: another matrix file than the project's own.
        reports: another folder for reports; what was observed for them is then kept there, too, so
            that a trial run and the project's own results do not disturb each other.

    Raises:
        BadInput: the folder is no checkout of trl-compat.
    """
    root = root.resolve()
    if not is_checkout(root):
        raise BadInput(
            f"{root} is not a checkout of trl-compat; change to a checkout, or use --project"
        )
    return Project(
        root=root,
        matrix_file=(matrix or root / "matrix.yaml").resolve(),
        reports=(reports or root / "reports").resolve(),
        state=(reports / ".state" if reports else root / ".trl-compat").resolve(),
    )


def is_checkout(folder: Path) -> bool:
    """Whether the parts of a project are in a folder."""
    return (folder / "advisories").is_dir() and (folder / "tiny_models").is_dir()


def available(root: Path) -> Path:
    """A folder with advisories, reproductions and models: a checkout, or what the package has.

    Raises:
        BadInput: the folder is no checkout, and the package came without them.
    """
    # The second where the package is editable; a wheel has copies, in the layout of a checkout.
    for folder in (root, Path(__file__).parents[3], SHIPPED):
        if is_checkout(folder):
            return folder
    raise BadInput(f"{root} is not a checkout of trl-compat, and the package contains no models")


def model_names(project: Project) -> tuple[str, ...]:
    """The models that the project has."""
    return tuple(sorted(path.parent.name for path in project.models.glob("*/config.json")))


def check_models(project: Project, models: tuple[str, ...]) -> dict[str, str]:
    """Digest of each model, after checking every file against ``tiny_models/SHA256SUMS``.

    Raises:
        BadInput: a model is missing, has a file too few or too many, or a file was changed.
    """
    sums_file = project.models / "SHA256SUMS"
    try:
        lines = sums_file.read_text(encoding="utf-8").splitlines()
    except OSError:
        raise BadInput(f"{sums_file}: missing; generate the models again: {MAKE}") from None
    wanted = {name: digest for digest, name in (line.split(maxsplit=1) for line in lines if line)}
    digests = {}
    for model in models:
        total = hashlib.sha256()
        names = sorted(name for name in wanted if name.startswith(f"{model}/"))
        if not names:
            raise BadInput(f"{sums_file}: it lists no model '{model}'; generate it: {MAKE}")
        for name in names:
            path = project.models / name
            found = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "missing"
            if found != wanted[name]:
                raise BadInput(f"{path}: does not match SHA256SUMS ({found[:12]}); run: {MAKE}")
            total.update(f"{name} {found}\n".encode())
        digests[model] = total.hexdigest()
    return digests


MAKE = "git checkout -- tiny_models (or: python tiny_models/make.py)"
