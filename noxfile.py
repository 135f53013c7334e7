"""Sessions; every line of logic is in the package."""

from __future__ import annotations

import nox

nox.options.default_venv_backend = "uv|virtualenv"
nox.options.sessions = ["lint", "tests"]
nox.options.reuse_existing_virtualenvs = True


@nox.session
def matrix(session: nox.Session) -> None:
    """Run cells, write reports/, print the table: nox -s matrix -- --help."""
    session.install("-e", ".")
    session.run("trl-compat", "matrix", *session.posargs)


@nox.session
def tests(session: nox.Session) -> None:
    """The harness's own tests, a run of the smoke profile among them."""
    session.install("-e", ".[tests]")
    session.run("pytest", *session.posargs)


@nox.session
def lint(session: nox.Session) -> None:
    """Style and types."""
    session.install("-e", ".[tests,lint]")
    session.run("ruff", "check")
    session.run("ruff", "format", "--check")
    session.run("mypy")
