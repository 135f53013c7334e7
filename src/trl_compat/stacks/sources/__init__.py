"""What a user has, read into exact versions: a lock, a requirements file, an environment.

One module per format; each converts its format into a :class:`Source` or says in one sentence why
it cannot.  Nothing is resolved, downloaded or imported, and no range is read as a version.
"""

from __future__ import annotations

from pathlib import Path

from trl_compat.errors import BadInput
from trl_compat.stacks.sources.installed import installed
from trl_compat.stacks.sources.release_warnings import refuse_doubtful, release_warnings
from trl_compat.stacks.sources.source import Source

__all__ = ["Source", "installed", "read", "refuse_doubtful", "release_warnings"]

MOST = 10_000  # packages of a lock

NOT_A_LOCK = {
    "pyproject.toml": "it contains ranges, not versions; lock it first, or check the environment",
    "Pipfile.lock": "export it first: pipenv requirements > requirements.txt",
    "pdm.lock": "export it first: pdm export -o requirements.txt",
    "environment.yml": "export the installed packages first: pip freeze > requirements.txt",
    "environment.yaml": "export the installed packages first: pip freeze > requirements.txt",
    "conda-lock.yml": "export the installed packages first: pip freeze > requirements.txt",
}


def read(what: str | Path) -> Source:
    """A requirements file, ``pip freeze`` output (``-``: from standard input), or a lock.

    The format is told by the content where that is TOML, by the name else.

    Raises:
        BadInput: nothing certain can be said; the sentence says why and what to do.
    """
    from trl_compat.files import reading
    from trl_compat.stacks.sources import requirements

    if str(what) == "-":
        return requirements.parse(reading.standard_input(), "standard input")
    path = Path(what)
    if path.name in NOT_A_LOCK:
        raise BadInput(f"{path}: {NOT_A_LOCK[path.name]}")
    if path.suffix in (".toml", ".lock"):
        return _lock(path)
    return requirements.read(path)


def _lock(path: Path) -> Source:
    from trl_compat.files.reading import toml_of
    from trl_compat.stacks.sources import poetry_lock, pylock, uv_lock

    data = toml_of(path)
    listed = isinstance(data.get("package"), list)
    for name in ("package", "packages"):
        if isinstance(data.get(name), list) and len(data[name]) > MOST:
            raise BadInput(f"{path}: more than {MOST} packages; this is more than a stack can have")
    try:
        if "lock-version" in data:
            return pylock.read(path, data)
        if "metadata" in data and listed and "lock-version" in data["metadata"]:
            return poetry_lock.read(path, data)
        if "version" in data and (listed or "requires-python" in data):
            return uv_lock.read(path, data)
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        # TOML of another shape than the tools write: no reader asks for each part whether it is
        # what its format says.
        raise BadInput(f"{path}: unreadable lock ({type(error).__name__}); lock again") from None
    raise BadInput(
        f"{path}: not a uv.lock, pylock.toml or poetry.lock; write what is installed "
        "to a file that can be read: pip freeze > requirements.txt"
    )
