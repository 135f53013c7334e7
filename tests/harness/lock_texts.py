"""One set of packages written in every format that doctor reads."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

GIT = "git+"


def requirements(packages: Mapping[str, str]) -> str:
    """As ``pip freeze`` prints it."""
    return "".join(
        f"{name} @ {version}\n" if version.startswith(GIT) else f"{name}=={version}\n"
        for name, version in packages.items()
    )


def uv_lock(packages: Mapping[str, str]) -> str:
    """As uv 0.5 to 0.13 writes it for a project with one dependency on each package."""
    edges = ", ".join(f'{{ name = "{name}" }}' for name in packages)
    text = (
        'version = 1\nrequires-python = ">=3.11"\n\n[[package]]\nname = "mine"\nversion = "0.1"\n'
        f'source = {{ virtual = "." }}\ndependencies = [{edges}]\n'
    )
    for name, version in packages.items():
        if version.startswith(GIT):
            url, _, commit = version.removeprefix(GIT).rpartition("@")
            where = f'git = "{url}?rev={commit}#{commit}"'
            version = "0.0.0.dev0"
        else:
            where = 'registry = "https://pypi.org/simple"'
        text += f'\n[[package]]\nname = "{name}"\nversion = "{version}"\nsource = {{ {where} }}\n'
    return text


def pylock(packages: Mapping[str, str]) -> str:
    """As PEP 751 has it."""
    text = 'lock-version = "1.0"\ncreated-by = "a test"\n'
    for name, version in packages.items():
        text += f'\n[[packages]]\nname = "{name}"\n'
        if version.startswith(GIT):
            url, _, commit = version.removeprefix(GIT).rpartition("@")
            text += f'vcs = {{ type = "git", url = "{url}", commit-id = "{commit}" }}\n'
        else:
            file = f"https://example.org/{name}-{version}.tar.gz"
            text += f'version = "{version}"\n'
            text += f'sdist = {{ url = "{file}", hashes = {{ sha256 = "0" }} }}\n'
    return text


def poetry_lock(packages: Mapping[str, str]) -> str:
    """As Poetry 2 writes it."""
    text = ""
    for name, version in packages.items():
        text += f'[[package]]\nname = "{name}"\n'
        if version.startswith(GIT):
            url, _, commit = version.removeprefix(GIT).rpartition("@")
            text += 'version = "0.0.0.dev0"\n[package.source]\ntype = "git"\n'
            text += f'url = "{url}"\nreference = "HEAD"\nresolved_reference = "{commit}"\n\n'
        else:
            text += f"version = {json.dumps(version)}\noptional = false\n\n"
    return text + '[metadata]\nlock-version = "2.1"\npython-versions = ">=3.11"\n'


WRITERS: dict[str, Callable[[Mapping[str, str]], str]] = {
    "requirements.txt": requirements,
    "uv.lock": uv_lock,
    "pylock.toml": pylock,
    "poetry.lock": poetry_lock,
}
