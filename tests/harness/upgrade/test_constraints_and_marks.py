"""Constraints and xfail marks are right for every release they speak of."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from trl_compat.advisories import Severity
from trl_compat.errors import BadInput
from trl_compat.matching.applies import matches
from trl_compat.packages import PACKAGES
from trl_compat.pytest import known_failure
from trl_compat.shipped import records, releases
from trl_compat.stacks.sources.source import Source
from trl_compat.upgrade.constraints import avoid, text

RECORDS = records.shipped()


def have(**versions: str) -> Source:
    return Source("a test", "environment", versions=versions)


def unaffected(record: records.CompiledAdvisory, package: str) -> list[Version]:
    """The releases of a package that rule a failure out, whatever the others are."""
    found = []
    for version in releases.known().final(package):
        source = Source("x", "x", versions={package: str(version)}, complete=False)
        if not matches(record, source, {}):
            found.append(version)
    return found


@pytest.mark.parametrize("failure", sorted(records.shipped()))
def test_no_release_that_a_constraint_allows_is_affected(failure: str) -> None:
    record = records.shipped_record(failure)
    found = avoid(record, {}, {}, RECORDS)
    if not found.ways:  # only where every release is affected, or may bring another silent failure
        silent = [r for r in RECORDS.values() if r.severity == Severity.SILENT_WRONG_RESULT]
        for package in PACKAGES:
            for version in unaffected(record, package):
                source = Source("x", "x", versions={package: str(version)}, complete=False)
                assert any(matches(r, source, {}) for r in silent), (package, version)
    for way in found.ways:
        allowed = SpecifierSet(way.specifier)
        for version in releases.known().final(way.package):
            source = Source("x", "x", versions={way.package: str(version)}, complete=False)
            if allowed.contains(version):
                assert not matches(record, source, {}), (way, version)


def test_what_is_given_narrows_what_has_to_change() -> None:
    record = records.shipped_record("zero3-register-hooks-rename")
    (way,) = avoid(record, {"trl": "0.15.2"}, {}, RECORDS).ways
    assert str(way) == "deepspeed>=0.14.4,<0.16.4"  # and not below what TRL 0.15.2 requires
    nothing = avoid(record, {"trl": "0.16.0"}, {}, RECORDS)
    assert not nothing.concerned
    assert "no constraint needed" in text(nothing, {"trl": "0.16.0"})


def test_a_constraint_that_pip_cannot_say_is_not_invented() -> None:
    # Every transformers is affected, below 5 at ZeRO-3 and from 5 on at every stage.
    record = records.shipped_record("ppo-zero3-save")
    assert avoid(record, {"trl": "0.12.2"}, {}, RECORDS).ways == ()
    at_two = avoid(record, {"trl": "0.28.0"}, {"zero_stage": (2,)}, RECORDS)
    assert [str(way) for way in at_two.ways] == ["transformers>=4.56.2,<5.0.0"]


def test_commits_are_said_to_be_out_of_reach() -> None:
    found = avoid(records.shipped_record("online-dpo-ref-none"), {}, {}, RECORDS)
    assert "cannot exclude trl from git at 6a05feff0" in text(found, {})


def test_the_mark_expects_the_failure_where_it_applies() -> None:
    affected = have(trl="0.12.2", transformers="4.46.3", deepspeed="0.15.2", accelerate="0.34.2")
    mark = known_failure("ppo-zero3-save", source=affected, trainer="PPO", zero_stage=3).mark
    assert mark.args == (True,)
    assert mark.kwargs["raises"] == (AttributeError,)
    assert mark.kwargs["strict"] is True
    assert mark.kwargs["reason"].startswith("ppo-zero3-save: PPO under DeepSpeed")


@pytest.mark.parametrize(
    ("versions", "conditions"),
    [
        ({"trl": "0.9.6"}, {"zero_stage": 3}),
        ({"trl": "0.12.2"}, {"zero_stage": 2}),
        ({"trl": "0.12.2"}, {"trainer": "GRPO"}),
        ({"trl": "0.12.2", "accelerate": "1.0.1"}, {"zero_stage": 3}),  # another comes first
    ],
)
def test_the_mark_changes_nothing_elsewhere(
    versions: dict[str, str], conditions: dict[str, Any]
) -> None:
    all_of_it = {
        "transformers": "4.46.3",
        "deepspeed": "0.15.2",
        "accelerate": "0.34.2",
        **versions,
    }
    mark = known_failure("ppo-zero3-save", source=have(**all_of_it), **conditions).mark
    assert mark.args == (False,)


def test_an_unknown_failure_is_named() -> None:
    with pytest.raises(BadInput, match="did you mean 'ppo-zero3-save'"):
        known_failure("ppo-zero3-saves")


def test_the_mark_works_in_a_suite(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        """
from trl_compat.packages import PACKAGES
from trl_compat.pytest import known_failure
from trl_compat.stacks.sources.source import Source

old = Source("x", "x", versions=dict(trl="0.12.2", transformers="4.46.3", deepspeed="0.15.2"))
new = Source("x", "x", versions=dict(trl="1.16.0", transformers="5.23.0", deepspeed="0.19.8"))

@known_failure("ppo-zero3-save", source=old)
def test_fails():
    raise AttributeError

@known_failure("ppo-zero3-save", source=old)
def test_passes():
    pass

@known_failure("ppo-zero3-save", source=old)
def test_fails_otherwise():
    raise KeyError

@known_failure("ppo-zero3-save", source=new)
def test_unaffected():
    pass

@known_failure("ppo-zero3-save")
def test_without_trl():
    pass
"""
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert "2 failed, 2 passed, 1 xfailed" in done.stdout
    assert "FAILED test_it.py::test_passes - [XPASS(strict)] ppo-zero3-save" in done.stdout
