"""Every check can fail: what it guards is broken on purpose, and the cell fails at that check."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from tests.harness.sabotages import cells
from tests.harness.sabotages.declaration import Sabotage
from trl_compat.cells.outcome import Outcome
from trl_compat.runtime import confine

EVERY = list(cells.by_stack())
# Different sabotages often use the same cell; without one it is run once.
CELLS = {(s.stack, failure, s.variant, s.fix): (failure, s) for failure, s in EVERY}


def name_of(value: object) -> str:
    return value.function if isinstance(value, Sabotage) else str(value)


@pytest.fixture(scope="module")
def runners() -> Iterator[cells.Runners]:
    confine.adopt_orphans()
    running = cells.Runners()
    yield running
    running.close()


def test_every_check_has_a_sabotage_or_a_reason() -> None:
    broken = {site for failure, s in EVERY for site in cells.sites_of(failure, s)}
    bare = {str(site) for site in cells.all_sites() if site not in broken}
    assert bare == set(cells.WITHOUT_SABOTAGE)


@pytest.mark.parametrize(("failure", "sabotage"), EVERY, ids=name_of)
def test_a_sabotage_means_one_check(failure: str, sabotage: Sabotage) -> None:
    assert len(cells.sites_of(failure, sabotage)) == 1


def test_no_two_checks_of_a_function_have_one_name() -> None:
    counted = Counter(str(site) for site in cells.all_sites())
    assert [site for site, count in counted.items() if count > 1] == []


@pytest.mark.matrix
@pytest.mark.parametrize(("failure", "sabotage"), EVERY, ids=name_of)
def test_a_sabotaged_cell_fails_at_its_check(
    runners: cells.Runners, failure: str, sabotage: Sabotage
) -> None:
    seen = cells.run(runners[sabotage.stack], failure, sabotage)
    (site,) = cells.sites_of(failure, sabotage)
    assert cells.broken_at(failure, seen) == cells.aimed_at(site, sabotage), seen.output


@pytest.mark.matrix
@pytest.mark.parametrize(("failure", "sabotage"), CELLS.values(), ids=name_of)
def test_the_cell_passes_without_a_sabotage(
    runners: cells.Runners, failure: str, sabotage: Sabotage
) -> None:
    seen = cells.run(runners[sabotage.stack], failure, sabotage, commit=False)
    assert cells.outcome(failure, seen) is Outcome.PASS, seen.output
