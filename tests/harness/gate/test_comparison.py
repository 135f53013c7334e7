"""What the gate says where an invariant is violated, on committed cells of two stacks."""

from __future__ import annotations

import datetime

from tests.harness.conftest import ROOT
from trl_compat import advisories, results
from trl_compat.gate import comparison
from trl_compat.gate.comparison import GateRun
from trl_compat.gate.judgement import ChangeVerdict
from trl_compat.stacks import matrix
from trl_compat.usage.relevance import Usage

BEFORE = "grid-trl-0.22.2-transformers-4.57.1-deepspeed-0.17.5"
AFTER = "grid-trl-0.22.2-transformers-4.57.1-deepspeed-0.18.1"


def test_a_violated_invariant_stops_the_upgrade_and_names_the_ways_of_what_violates_it() -> None:
    found = results.read(ROOT / "reports" / "results.json")
    assert found is not None
    both = GateRun(
        reference=BEFORE,
        candidate=AFTER,
        stacks=matrix.load(ROOT / "matrix.yaml").stacks,
        cells=[cell for cell in found.cells if cell.stack in (BEFORE, AFTER)],
        folder="evidence",
    )
    catalogue = advisories.load(ROOT / "advisories", ROOT / "tests" / "reproductions")
    usage = Usage(trainers=("SFT",), strategies=("zero2",))
    (report,) = comparison.judge(
        catalogue, both, ["accumulation"], usage, [], datetime.date(2026, 11, 22)
    )
    assert report.verdict is ChangeVerdict.REGRESSION
    assert report.stops
    ways = {remedy.failure for remedy in report.remedies}
    assert ways == {"ds-offload-drops-microbatches", "ds-zero2-ga-keeps-last"}
    fixes = {remedy.name: remedy.proven for remedy in report.remedies if remedy.name}
    assert fixes.keys() == {"zero1-with-offload", "zero1-in-place-of-zero2"}
    assert False not in fixes.values()
