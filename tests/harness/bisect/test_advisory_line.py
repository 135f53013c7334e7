"""The line of an advisory that an edge concerns, and the range that it should say."""

from __future__ import annotations

import pytest
from packaging.version import Version

from tests.harness.conftest import ROOT
from trl_compat.advisories import Catalogue
from trl_compat.bisect.advisory_line import line_of, proposed
from trl_compat.stacks.matrix import Matrix


@pytest.mark.parametrize(
    ("now", "passing", "fails", "then"),
    [
        (">=0.11.0,<=0.12.2", "0.12.2", "0.12.1", ">=0.11.0,<=0.12.1"),
        (">=0.11.0,<=0.12.2", "0.11.0", "0.11.1", ">=0.11.1,<=0.12.2"),
        ("<5.0.0", "5.1.0", "5.0.0", "<5.1.0"),
        (">=5.0.0", "5.0.0", "5.1.0", ">=5.1.0"),
        ("==0.10.1", "0.11.1", "0.11.0", ">=0.10.1,<=0.11.0"),
        ("==0.10.1", "0.9.4", "0.9.6", ">=0.9.6,<=0.10.1"),
        ("~=1.2.0", "1.2.4", "1.2.3", ">=1.2.0,<=1.2.3"),
        (">=1.0,!=1.5.0,<2", "1.9", "1.8", ">=1.0,!=1.5.0,<1.9"),
        ("", "1.9", "1.8", "<=1.8"),
    ],
)
def test_only_the_bound_at_the_edge_moves(now: str, passing: str, fails: str, then: str) -> None:
    assert proposed(now, Version(passing), Version(fails)) == then


def line(matrix: Matrix, catalogue: Catalogue, symptom: str, package: str, *pair: str) -> object:
    found = line_of(
        catalogue["saving"],
        ROOT / "advisories" / "ppo-zero3-save.yaml",
        symptom,
        {"zero_stage": 3, "trainer": "PPO"},
        matrix.stacks["old"],
        package,
        (pair[0], pair[1]),
    )
    return (found.now, found.proposed)


def test_the_block_of_the_symptom_is_meant(matrix: Matrix, catalogue: Catalogue) -> None:
    agreed = (">=0.11,<=1.12.0", ">=0.11,<=1.12.0")
    assert line(matrix, catalogue, "text", "trl", "0.10.1", "0.11.0") == agreed
    assert line(matrix, catalogue, "text", "trl", "0.11.0", "0.11.1")[1] == ">=0.11.1,<=1.12.0"  # type: ignore[index]
    assert line(matrix, catalogue, "text", "transformers", "5.1.0", "5.0.0") == ("<5", "<5.1.0")


def test_a_symptom_without_a_block_wants_a_new_one(matrix: Matrix, catalogue: Catalogue) -> None:
    assert line(matrix, catalogue, "empty", "trl", "0.10.1", "0.11.0") == ("", ">=0.11.0")


def test_a_package_that_the_block_does_not_name_gets_a_bound(
    matrix: Matrix, catalogue: Catalogue
) -> None:
    assert line(matrix, catalogue, "text", "peft", "0.12.0", "0.13.2") == ("", ">=0.13.2")
