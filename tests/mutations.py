"""Breaks the checks and the signatures themselves, one at a time: some test must turn red.

A *mutant* of a check is the check without its condition, or without one part of that: a sabotage
of that check must no longer fail there.  A mutant of a signature is a symptom with one part that
matches nothing, or everything: the tests of signatures and masks must fail.  Mutants live in memory
and in a temporary folder; the working tree stays as it is.

``python -m tests.mutations [checks] [signatures]`` prints a line per mutant and ends with 1 if one
survived.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from tests.check_sites import RUNTIME, Site, mutants
from tests.harness.conftest import ROOT
from tests.harness.sabotages import cells
from tests.harness.sabotages.declaration import Sabotage
from trl_compat.advisories import Advisory, Symptom
from trl_compat.cells.observation import Observation
from trl_compat.files import documents
from trl_compat.runtime import confine

SIGNATURE_TESTS = ("advisories.test_signatures", "advisories.test_masks")
NEVER, ALWAYS = "never", "always"
# A part of a symptom, replaced so that it matches nothing or everything.
BROKEN: dict[str, dict[str, str | None]] = {
    "exception": {NEVER: "NoSuchError"},  # compared as it is, so nothing matches every type
    "message": {NEVER: r"[^\s\S]", ALWAYS: ""},
    "where": {NEVER: "nowhere", ALWAYS: "*"},
    "through": {NEVER: "nowhere", ALWAYS: "*", "left out": None},
}


@dataclass(frozen=True)
class Fate:
    """What became of a mutant.

    Attributes:
        killer: the test that turned red, None if none did.
        excuse: why no test can turn red.
    """

    mutant: str
    killer: str | None
    remark: str = ""
    excuse: str = ""

    @property
    def survived(self) -> bool:
        """Whether nobody noticed, and somebody should have."""
        return self.killer is None and not self.excuse

    def __str__(self) -> str:
        if self.excuse:
            return f"{self.mutant:<90} cannot be told: {self.excuse}"
        what = f"killed by {self.killer}" if self.killer else "SURVIVED"
        return f"{self.mutant:<90} {what} {self.remark}".rstrip()


def of_checks() -> Iterator[Fate]:
    """The fate of every check without teeth, stack by stack."""
    aims: dict[Site, list[tuple[str, Sabotage]]] = {site: [] for site in cells.all_sites()}
    for failure, sabotage in cells.by_stack():
        for site in cells.sites_of(failure, sabotage):
            aims[site].append((failure, sabotage))
    with (
        tempfile.TemporaryDirectory(prefix="mutants-") as folder,
        contextlib.closing(cells.Runners(Path(folder))) as runners,
    ):
        for site, sabotages in aims.items():
            if reason := cells.WITHOUT_SABOTAGE.get(str(site)):
                yield Fate(str(site), None, excuse=reason)
            else:
                for asked, text in mutants(site):
                    yield _of_check(runners, Path(folder), site, asked, text, sabotages)


def _of_check(
    runners: cells.Runners,
    folder: Path,
    site: Site,
    asked: str,
    text: str,
    sabotages: list[tuple[str, Sabotage]],
) -> Fate:
    """The fate of a check that does not ask something any more."""
    name, remark = f"{site} [{_short(asked)}]", "no sabotage is aimed at it"
    mutant = Path(tempfile.mkdtemp(dir=folder)) / site.path.name
    mutant.write_text(text, encoding="utf-8")
    place: dict[str, Any] = {"reproductions": mutant.parent}
    if site.of_runtime:
        inner = site.path.relative_to(RUNTIME).with_suffix("").parts
        place = {"replaced": {".".join(("trl_compat.runtime", *inner)): str(mutant)}}
    for failure, sabotage in sabotages:
        seen = cells.run(runners[sabotage.stack], failure, sabotage, **place)
        remark = f"then {cells.broken_at(failure, seen)}"
        if not _let_through(seen, site, sabotage):
            # Red for another reason, so that it proves nothing about the check.
            remark = f"not reached: {remark}"
        elif cells.broken_at(failure, seen) != cells.aimed_at(site, sabotage):
            return Fate(name, f"test_sabotages[{sabotage.function}]", remark)
    return Fate(name, None, remark)


def _short(condition: str) -> str:
    return condition if len(condition) <= 40 else f"{condition[:39]}…"


def _let_through(seen: Observation, site: Site, sabotage: Sabotage) -> bool:
    """Whether a rank came past the check, which by now holds whatever it finds."""
    for rank in seen.ranks.values():
        registered = rank.preconditions if site.method == "precondition" else rank.checks
        if any(one.name == sabotage.check and one.holds for one in registered):
            return True
    return False


@dataclass
class FirstRed:
    """A plugin for pytest that keeps the first test that failed."""

    test: str | None = None
    collected: int = field(default=0)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and self.test is None:
            self.test = report.nodeid.rpartition("/")[2]

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.collected = len(session.items)


def of_signatures() -> Iterator[Fate]:
    """The fate of every symptom with a broken part."""
    if red := _first_red():
        raise SystemExit(f"{red} is red without any mutant; nothing can be said")
    for path in sorted((ROOT / "advisories").glob("*.yaml")):
        advisory = _advisory(path)
        for name, symptom in advisory.symptoms.items():
            for part, ways in BROKEN.items():
                if getattr(symptom, part) is None:
                    continue
                for way, text in ways.items():
                    changed = symptom.model_copy(update={part: text})
                    killer = _first_red(path, _with(advisory, name, changed))
                    yield Fate(f"{advisory.id}.{name}: {part} {way}", killer)


def _with(advisory: Advisory, name: str, symptom: Symptom) -> Advisory:
    return advisory.model_copy(update={"symptoms": {**advisory.symptoms, name: symptom}})


@functools.cache
def _advisory(path: Path) -> Advisory:
    return READ(path, Advisory)


READ = documents.load


def _first_red(mutated: Path | None = None, mutant: Advisory | None = None) -> str | None:
    """The first test of signatures that fails where an advisory is replaced by its mutant."""

    def load(path: Path, model: type[Any]) -> Any:
        if model is not Advisory:
            return READ(path, model)
        return mutant if path == mutated else _advisory(path)

    tests = [
        ROOT / "tests" / "harness" / f"{name.replace('.', '/')}.py" for name in SIGNATURE_TESTS
    ]
    arguments = [str(path) for path in tests if path.is_file()]
    arguments += [
        "-x",
        "-o",
        "addopts=",
        "-p",
        "no:terminal",
        "-p",
        "no:cacheprovider",
        f"--rootdir={ROOT}",
    ]
    for name in SIGNATURE_TESTS:  # they read the advisories when they are imported
        sys.modules.pop(f"tests.harness.{name}", None)
    plugin = FirstRed()
    with (
        mock.patch.object(documents, "load", load),
        mock.patch.dict(os.environ, PYTEST_DISABLE_PLUGIN_AUTOLOAD="1"),
    ):
        status = pytest.main(arguments, plugins=[plugin])
    if status not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED) or not plugin.collected:
        raise SystemExit(f"pytest ended with {status!r}; nothing can be said")
    return plugin.test


KINDS = {"checks": of_checks, "signatures": of_signatures}


def main(wanted: list[str]) -> int:
    """Runs the mutants of the wanted kinds, all if none is named, and gives the exit code."""
    if unknown := [name for name in wanted if name not in KINDS]:
        print(f"unknown kind '{unknown[0]}'; available: {', '.join(KINDS)}", file=sys.stderr)
        return 2
    confine.adopt_orphans()
    fates = []
    for kind in wanted or KINDS:
        for fate in KINDS[kind]():
            fates.append(fate)
            print(fate, flush=True)
    survived = sum(fate.survived for fate in fates)
    print(f"{len(fates)} mutants, {survived} survived")
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
