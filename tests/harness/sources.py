"""Source packages and git repositories made by hand, and an index that offers nothing else.

A build needs no network here: the sources bring their own backend, and pip comes from the
interpreter's own copy of it.
"""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest

# A PEP 517 backend that makes a wheel which says in what surroundings it was built.
BACKEND = """
import json, os, zipfile
NAME, VERSION = "{name}", "{version}"
def build_wheel(folder, settings=None, metadata=None):
    {before}
    file = f"{{NAME}}-{{VERSION}}-py3-none-any.whl"
    seen = dict(env=dict(os.environ), cwd=os.getcwd(), home=os.listdir(os.path.expanduser("~")))
    seen["tried"] = globals().get("tried")
    parts = {{
        f"{{NAME}}/__init__.py": "",
        f"{{NAME}}/seen.json": json.dumps(seen),
        f"{{NAME}}-{{VERSION}}.dist-info/METADATA":
            f"Metadata-Version: 2.1\\nName: {{NAME}}\\nVersion: {{VERSION}}\\n",
        f"{{NAME}}-{{VERSION}}.dist-info/WHEEL":
            "Wheel-Version: 1.0\\nGenerator: x\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
    }}
    record = "".join(f"{{part}},,\\n" for part in parts)
    parts[f"{{NAME}}-{{VERSION}}.dist-info/RECORD"] = record
    with zipfile.ZipFile(os.path.join(folder, file), "w") as wheel:
        for part, text in parts.items():
            wheel.writestr(part, text)
    {after}
    return file
"""
PYPROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
[project]
name = "{name}"
version = "{version}"
"""


def reaching_out(folder: Path, address: tuple[str, int]) -> str:
    """What a hostile build does first: it notes what it sees where somebody can read it.

    Args:
        folder: where it writes ``planted``, and reads ``secret``.
        address: where it connects to.
    """
    lines = [
        "import os, socket",
        "tried = globals()['tried'] = {}",
        f"with suppress('write'): open({str(folder / 'planted')!r}, 'a').write(str(os.environ))",
        f"with suppress('read'): tried['secret'] = open({str(folder / 'secret')!r}).read()",
        f"with suppress('connect'): socket.create_connection({address!r}, 2)",
    ]
    before = """
import contextlib
@contextlib.contextmanager
def suppress(what):
    try:
        yield
        tried[what] = "done"
    except OSError as error:
        tried[what] = "refused"
"""
    return f"exec({before + chr(10).join(lines)!r}, globals())"


def files(name: str, version: str, *, before: str = "pass", after: str = "pass") -> dict[str, str]:
    """The files of a source package; the code before and after is its build's own."""
    return {
        "PKG-INFO": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        "pyproject.toml": PYPROJECT.format(name=name, version=version),
        "backend.py": BACKEND.format(name=name, version=version, before=before, after=after),
    }


def sdist(folder: Path, name: str, version: str, parts: dict[str, str]) -> Path:
    """Puts a source package into a folder."""
    path = folder / f"{name}-{version}.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for part, text in parts.items():
            info = tarfile.TarInfo(f"{name}-{version}/{part}")
            info.size = len(text.encode())
            archive.addfile(info, io.BytesIO(text.encode()))
    return path


def only_from(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """uv finds what lies in a folder and nothing else; caches are the test's own."""
    import ensurepip

    bundled = Path(ensurepip.__file__).parent / "_bundled"
    if not list(bundled.glob("pip-*.whl")):
        pytest.skip("this Python brings no pip of its own")
    for name in list(os.environ):
        if name.startswith(("PIP_", "UV_")):
            monkeypatch.delenv(name)
    empty = tmp_path / "simple"
    empty.mkdir()
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(empty))
    monkeypatch.setenv("UV_DEFAULT_INDEX", empty.as_uri())
    monkeypatch.setenv("UV_FIND_LINKS", f"{folder},{bundled}")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))
    monkeypatch.setenv("TRL_COMPAT_CACHE", str(tmp_path / "cache"))


def repository(folder: Path, parts: dict[str, str]) -> str:
    """Makes a git repository with one commit and gives the commit."""
    folder.mkdir(parents=True)
    for part, text in parts.items():
        (folder / part).write_text(text)
    git(folder, "init", "--quiet")
    git(folder, "add", "--all")
    return commit(folder)


def commit(folder: Path) -> str:
    """Commits what is added."""
    git(folder, "-c", "user.name=a", "-c", "user.email=a@b.test", "commit", "--quiet", "-m", "one")
    return git(folder, "rev-parse", "HEAD").strip()


def git(folder: Path, *arguments: str) -> str:
    """Runs git in a folder."""
    return subprocess.run(
        ["git", "-C", str(folder), *arguments], check=True, capture_output=True, text=True
    ).stdout


def instead_of(url: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets git find a folder under an address, as a user's own configuration may."""
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", f"url.{folder}.insteadOf")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", url)


def wheel(folder: Path, name: str, version: str, *requires: str) -> Path:
    """Puts a wheel with one module into a folder."""
    path = folder / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    wants = "".join(f"Requires-Dist: {one}\n" for one in requires)
    parts = {
        f"{name}/__init__.py": f"version = '{version}'\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{wants}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{part},,\n" for part in [*parts, f"{info}/RECORD"])
    with zipfile.ZipFile(path, "w") as archive:
        for part, text in {**parts, f"{info}/RECORD": record}.items():
            archive.writestr(part, text)
    return path
