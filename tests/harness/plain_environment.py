"""An environment as a user makes one: ``uv venv`` and ``uv pip install``, not by the harness.

It has the versions of a stack of the matrix, so that their verdicts can be compared.  Nothing is
downloaded: its files are links into uv's cache, where those of the stack come from, too.  So no
test may write into one of them.
"""

from __future__ import annotations

from pathlib import Path

from tests.harness.conftest import ROOT
from trl_compat.stacks import matrix
from trl_compat.stacks.environments import build, cache
from trl_compat.stacks.environments.uv import uv


def make(folder: Path, stack: str, *, without: tuple[str, ...] = ()) -> Path:
    """The environment of a stack without some packages; gives its interpreter."""
    built = build.ensure(stack, matrix.load(ROOT / "matrix.yaml").stacks[stack])
    packages = {n: v for n, v in built.lock.packages.items() if n not in without}
    wanted = [f"{name}=={version}" for name, version in packages.items() if name != "deepspeed"]
    if version := packages.get("deepspeed"):  # no index has a wheel of it
        wanted += map(str, sorted(cache.root().glob(f"wheels/deepspeed-{version}-py*/*.whl"))[:1])
    uv(["venv", "--quiet", "--python", str(built.python.resolve()), str(folder)])
    python = folder / "bin" / "python"
    uv(["pip", "install", "--quiet", "--offline", "--no-deps", "--python", str(python), *wanted])
    return python
