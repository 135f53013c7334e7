"""Nox sessions; all logic is in the package."""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path

import nox

# nox creates its environments with uv, which should use the indexes that pip is configured for.
sys.path.insert(0, str(Path(__file__).parent / "src"))
from trl_compat.cells import rerun
from trl_compat.stacks.environments.settings import uv_environment
from trl_compat.stacks.stack_names import stack_names

os.environ.update(uv_environment(os.environ))
nox.options.default_venv_backend = "uv|virtualenv"
nox.options.reuse_existing_virtualenvs = True
nox.options.sessions = ["lint", "tests"]


def install(session: nox.Session, extras: str = "") -> None:
    """Installs the package from the checkout, unless the session's environment is up to date."""
    project = Path("pyproject.toml").resolve()
    wanted = hashlib.sha256(f"{project} {extras} ".encode() + project.read_bytes()).hexdigest()
    done = Path(session.virtualenv.location) / "installed.sha256"
    if not done.is_file() or done.read_text() != wanted:
        session.install("-e", f".{extras}")
        done.write_text(wanted)


def ours(session: nox.Session, *words: str) -> None:
    """Runs the console script, which then prints commands as the caller of nox typed them."""
    called = rerun.nox_words(sys.argv[0], session.invoked_from)
    session.run("trl-compat", *words, env={rerun.STARTED_BY: called})


@nox.session
def matrix(session: nox.Session) -> None:
    """Run cells, write reports/ and print the table; options follow --, see -- --help."""
    install(session, "[matrix,ray]" if "ray" in session.posargs else "[matrix]")
    ours(session, "matrix", *session.posargs)


@nox.session
@nox.parametrize("name", [nox.param(n, id=n) for n in stack_names(Path("matrix.yaml"))])
def stack(session: nox.Session, name: str) -> None:
    """Run a single stack: nox -s "stack(trl-0.12.2)"."""
    install(session, "[matrix]")
    ours(session, "matrix", "--stack", name, *session.posargs)


@nox.session
def bench(session: nox.Session) -> None:
    """Run the same cells with plain torchrun and with the harness; print a table."""
    install(session, "[matrix]")
    ours(session, "bench", *session.posargs)


@nox.session
def bisect(session: nox.Session) -> None:
    """Find the release at which a failure appears or disappears; options follow --."""
    install(session, "[matrix]")
    ours(session, "bisect", *session.posargs)


@nox.session
def gate(session: nox.Session) -> None:
    """Test an upgrade: nox -s gate -- --from trl-0.17.0 --to trl-0.18.2."""
    install(session, "[matrix]")
    ours(session, "gate", *session.posargs)


@nox.session
def pyz(session: nox.Session) -> None:
    """Build dist/trl-compat.pyz: the harness with its dependencies in one file, for check."""
    install(session, "[matrix]")
    session.run("python", "-m", "trl_compat.publishing.zip_application", *session.posargs)


@nox.session
def kit(session: nox.Session) -> None:
    """Make dist/gpu-kit, to copy to a machine with a GPU, torch and no network."""
    install(session, "[matrix]")
    session.install("pip")  # downloads wheels for another Python than its own
    session.run("python", "-m", "trl_compat.publishing.kit", *session.posargs)


@nox.session
def tests(session: nox.Session) -> None:
    """Run the harness's tests, including a run of the smoke profile."""
    install(session, "[tests]")
    # A file stays on one worker: what is costly to start is started once for a file.
    session.run("pytest", "--numprocesses=2", "--dist=loadfile", *session.posargs)


@nox.session
def browser(session: nox.Session) -> None:
    """Test the report in Chromium, including accessibility with axe; needs Chromium on the path."""
    install(session, "[tests,browser]")
    session.run("pytest", "-m", "browser", *session.posargs)


@nox.session
def ray(session: nox.Session) -> None:
    """Run real cells on a Ray cluster of three nodes on this machine, one of which is killed."""
    install(session, "[tests,ray]")
    files = ("tests/harness/running/test_ray_tasks.py", "tests/harness/running/test_ray.py")
    session.run("pytest", "-s", *files, *session.posargs)


@nox.session
def mutations(session: nox.Session) -> None:
    """Disable every check and change every signature, one at a time: some test must fail."""
    install(session, "[tests]")
    session.run("python", "-m", "tests.mutations", *session.posargs)


@nox.session
def lint(session: nox.Session) -> None:
    """Check style, types, advisories and workflows; .pre-commit-config.yaml runs the same."""
    install(session, "[tests,lint]")
    session.run("ruff", "check")
    session.run("ruff", "format", "--check")
    session.run("mypy")
    session.run("trl-compat", "advisories", "lint")
    workflows = sorted(str(path) for path in Path(".github", "workflows").glob("*.yml"))
    session.run("check-jsonschema", "--builtin-schema", "vendor.github-workflows", *workflows)
    session.run("zizmor", "--offline", "--quiet", "--strict-collection", ".github", "action.yml")
