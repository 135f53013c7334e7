"""What is new in a stack, who is suspected of it, and how a replay is held against the records."""

from __future__ import annotations

import datetime

import pytest
from packaging.version import Version

from tests.harness import made_results
from trl_compat import results
from trl_compat.advisories import Catalogue
from trl_compat.cells.outcome import Outcome
from trl_compat.refresh import holding, replay, replay_text, summary
from trl_compat.refresh.comparison import Change, compare
from trl_compat.refresh.days import Day, Release, days
from trl_compat.refresh.proposal import Proposal, Proposed
from trl_compat.refresh.suspects import suspects
from trl_compat.results import Signature
from trl_compat.shipped import releases
from trl_compat.stacks.matrix import Stack

VERSIONS = {
    "torch": "2.13.0",
    "trl": "1.16.0",
    "transformers": "5.23.0",
    "deepspeed": "0.19.8",
    "accelerate": "1.15.0",
    "peft": "0.21.2",
}
RAISED = Signature(exception="TypeError", message="m", where="transformers/trainer.py:train")
OTHER = Outcome.OTHER_FAILURE


def cell(stack: str, outcome: Outcome, **changes: object) -> results.CellResult:
    signature = None if outcome is Outcome.PASS else RAISED
    given: dict[str, object] = {
        "id": f"{stack}__{changes.get('failure', 'f')}",
        "stack": stack,
        "failure": "f",
        "variant": "v",
        "outcome": outcome,
        "symptom": "text" if outcome is Outcome.REPRODUCED else None,
        "signature": signature,
        **changes,
    }
    return made_results.cell(**given)


def document(*cells: results.CellResult, **stacks: dict[str, str]) -> results.Results:
    found = {}
    for name in dict.fromkeys([*stacks, *(c.stack for c in cells)]):
        versions = {**VERSIONS, **stacks.get(name, {})}
        found[name] = results.StackResult(
            python="3.11", as_of="2026-12-01", lock_sha256=None, packages=versions, **versions
        )
    return made_results.document(*cells).model_copy(update={"stacks": found})


@pytest.mark.parametrize(
    ("before", "after", "change"),
    [
        (Outcome.PASS, Outcome.PASS, None),
        (Outcome.PASS, Outcome.REPRODUCED, Change.FAILS),
        (Outcome.PASS, Outcome.MASKED, Change.FAILS),
        (Outcome.PASS, Outcome.OTHER_FAILURE, Change.FAILS),
        (Outcome.PASS, Outcome.HANG, Change.FAILS),
        (Outcome.PASS, Outcome.NOT_APPLICABLE, Change.GONE),
        (Outcome.PASS, Outcome.UNSTABLE, Change.CANNOT_TELL),
        (Outcome.REPRODUCED, Outcome.REPRODUCED, None),
        (Outcome.REPRODUCED, Outcome.OTHER_FAILURE, Change.FAILS_OTHERWISE),
        (Outcome.REPRODUCED, Outcome.PASS, Change.PASSES),
        (Outcome.NOT_APPLICABLE, Outcome.PASS, Change.NEW),
        (Outcome.NOT_APPLICABLE, Outcome.REPRODUCED, Change.FAILS),
        (Outcome.HARNESS_ERROR, Outcome.REPRODUCED, None),
    ],
)
def test_what_became_of_a_cell(before: Outcome, after: Outcome, change: Change | None) -> None:
    found = compare(document(cell("a", before), cell("b", after)), "a", "b")
    assert [one.change for one in found.cells] == ([change] if change else [])
    assert found.flagged is bool(change and change.bad)


def test_another_symptom_is_another_failure() -> None:
    shown = document(
        cell("a", Outcome.REPRODUCED, symptom="one"), cell("b", Outcome.REPRODUCED, symptom="two")
    )
    (found,) = compare(shown, "a", "b").cells
    assert found.change is Change.FAILS_OTHERWISE


def test_a_stack_that_cannot_be_installed_is_flagged_with_the_reason() -> None:
    shown = document(
        cell("a", Outcome.PASS), cell("b", Outcome.UNRESOLVABLE, reason="no such peft")
    )
    found = compare(shown, "a", "b")
    assert (found.not_installable, found.cells, found.flagged) == ("no such peft", (), True)


MOVED = {
    "torch": ("2.13.0", "2.15.0"),
    "trl": ("1.15.0", "1.16.0"),
    "transformers": ("5.22.0", "5.23.0"),
    "tqdm": ("1", "2"),
}


def test_the_package_that_raised_is_suspected_first_then_those_on_the_way() -> None:
    traceback = (
        '  File "site-packages/tqdm/std.py", line 1, in a\n'
        '  File "site-packages/trl/trainer/x.py", line 1, in b\n'
        '  File "site-packages/transformers/trainer.py", line 2, in train'
    )
    seen = cell("b", OTHER, traceback=traceback)
    found = suspects(seen, MOVED)
    assert [one.package for one in found] == ["transformers", "trl", "tqdm", "torch"]
    assert str(found[0]) == "transformers 5.22.0 → 5.23.0 (raised in it)"


def test_a_package_that_did_not_change_is_not_suspected() -> None:
    found = suspects(cell("b", OTHER), {"torch": ("2.13.0", "2.15.0")})
    assert [one.package for one in found] == ["torch"]


def test_what_does_it_alone_is_proven_and_what_does_not_comes_last() -> None:
    found = suspects(cell("b", OTHER), MOVED, {"trl": True, "transformers": False})
    assert [one.package for one in found] == ["trl", "torch", "tqdm", "transformers"]
    assert found[0].proven
    assert "unlikely" in found[-1].why


def proposed(name: str, *moved: Release, **versions: str) -> Proposed:
    stack = Stack.model_validate({"as_of": "2026-12-01", **VERSIONS, **versions})
    return Proposed(name, stack, moved, "why")


def test_the_text_for_a_pull_request() -> None:
    trl, peft = (Release(p, Version(v)) for p, v in (("trl", "1.17.0"), ("peft", "0.22.0")))
    asked = Proposal(
        "newest",
        (trl, peft),
        (
            proposed("x-trl", trl, trl="1.17.0"),
            proposed("x-peft", peft, peft="0.22.0"),
            proposed("x-newest", trl, peft, trl="1.17.0", peft="0.22.0"),
        ),
    )
    shown = document(
        cell("newest", Outcome.PASS),
        cell("newest", Outcome.REPRODUCED, failure="g", id="g"),
        cell("x-trl", OTHER),
        cell("x-trl", Outcome.PASS, failure="g", id="g2"),
        cell("x-newest", OTHER),
        cell("x-newest", Outcome.REPRODUCED, failure="g", id="g3"),
        cell("x-peft", Outcome.UNRESOLVABLE, reason="peft | needs more"),
        **{
            "x-trl": {"trl": "1.17.0"},
            "x-peft": {"peft": "0.22.0"},
            "x-newest": {"trl": "1.17.0", "peft": "0.22.0"},
        },
    )
    found = {one.name: compare(shown, "newest", one.name) for one in asked.stacks}
    said = summary.render(asked, found, ran=True, as_of="2026-12-01")
    assert "## New releases: 1 new failure; 1 stack cannot be installed" in said
    assert "- `x-peft` (peft 0.21.2 → 0.22.0): peft \\| needs more" in said
    (row,) = [line for line in said.splitlines() if "other-failure" in line]
    assert "`x-trl`, `x-newest`" in row
    assert "trl 1.16.0 → 1.17.0 (moved alone, it does the same)" in row
    assert "none knows it" in row
    assert said.index("### Newly fails") < said.index("### Newly passes")
    assert "| `g` v |" in said[said.index("### Newly passes") :]


def test_nothing_new_is_said_in_a_line() -> None:
    said = summary.render(Proposal("newest", (), ()), {}, ran=True, as_of="2026-12-01")
    assert said.startswith("## No new releases\n")


def replayed(
    catalogue: Catalogue,
    first: str,
    last: str,
    outcomes: dict[str, Outcome],
    traceback: str = "",
) -> tuple[list[Day], list[replay.Account], results.Results]:
    """A replay whose cell of the failure passes on each day but those named; they are kept."""
    day = datetime.date.fromisoformat
    held = holding.parse(["torch=2.4.1"], releases.known())
    start, found = days(day(first), day(last), releases.known(), held)
    stacks = {"before": start, **dict(replay.later_stacks(found))}
    cells, now = [], Outcome.PASS
    for name in stacks:
        now = outcomes.get(name.removeprefix("replay-"), now)
        cells.append(
            cell(name, now, failure="saving", variant="zero3", id=name, traceback=traceback)
        )
    versions = {
        name: {package: getattr(stack, package) for package in VERSIONS}
        for name, stack in stacks.items()
    }
    shown = document(*cells, **versions)
    return found, replay.accounts(start, "before", found, shown, catalogue), shown


def test_a_release_that_breaks_is_found_on_its_day(catalogue: Catalogue) -> None:
    _, told, shown = replayed(
        catalogue, "2024-09-10", "2024-09-30", {"2024-09-19": Outcome.REPRODUCED}
    )
    (hit,) = [one for one in told if one.introduced]
    assert str(hit.day.date) == "2024-09-19"  # trl 0.11.0
    assert (hit.introduced, hit.caught, hit.missed) == (("saving",), ("saving",), ())
    totals = replay.totals(told, shown)
    assert (totals.breaking, totals.caught, totals.discoveries, totals.false) == (1, 1, 0, 0)
    said = replay_text.render(told, totals, "then", "About.")
    assert "1 of them brought a failure that the advisories know; 1 of these were flagged" in said
    assert "brings `saving` (flagged)" in said


@pytest.mark.parametrize(
    ("outcomes", "why"),
    [
        ({}, "its cells pass: see trl-compat advisories check"),
        ({"2024-09-19": OTHER}, "its cells fail with something else"),
        ({"before": OTHER}, "its cells failed before as well"),
        ({"2024-09-19": Outcome.NOT_APPLICABLE}, "the stack has no such trainer or option"),
    ],
)
def test_a_release_that_is_not_flagged_has_a_reason(
    catalogue: Catalogue, outcomes: dict[str, Outcome], why: str
) -> None:
    _, told, shown = replayed(catalogue, "2024-09-10", "2024-09-30", outcomes)
    (missed,) = [one for one in told if one.missed]
    assert missed.missed == (("saving", why),)
    said = replay_text.render(told, replay.totals(told, shown), "then", "About.")
    assert "## Not flagged, and why" in said
    assert "0 of these were flagged on their first day" in said


def test_a_flag_without_a_record_is_a_discovery_until_what_ends_it(catalogue: Catalogue) -> None:
    _, told, shown = replayed(
        catalogue,
        "2026-06-01",
        "2026-06-30",
        {"2026-06-03": OTHER, "2026-06-12": Outcome.PASS},
    )
    (flag,) = [flag for one in told for flag in one.flags]
    assert (flag.explained, flag.false, flag.suspected) == (False, False, "transformers")
    assert flag.ended is not None
    assert str(flag.ended.date) == "2026-06-12"
    assert replay.totals(told, shown).discoveries == 1


def test_a_flag_that_is_gone_though_no_suspect_moved_is_false(catalogue: Catalogue) -> None:
    _, told, shown = replayed(
        catalogue,
        "2026-06-01",
        "2026-06-30",
        {"2026-06-15": OTHER, "2026-06-16": Outcome.PASS},  # deepspeed alone
    )
    (flag,) = [flag for one in told for flag in one.flags]
    assert flag.false
    totals = replay.totals(told, shown)
    assert (totals.false, totals.discoveries) == (1, 0)


def test_a_flag_that_another_package_mends_is_not_false(catalogue: Catalogue) -> None:
    through = '  File "site-packages/deepspeed/engine.py", line 1, in step'
    _, told, _ = replayed(
        catalogue,
        "2026-06-01",
        "2026-06-30",
        {"2026-06-15": OTHER, "2026-06-16": Outcome.PASS},  # deepspeed alone
        traceback=through,
    )
    (flag,) = [flag for one in told for flag in one.flags]
    assert not flag.false


def test_a_day_that_cannot_be_installed_is_not_what_the_next_is_compared_with(
    catalogue: Catalogue,
) -> None:
    _, told, _ = replayed(
        catalogue,
        "2026-06-01",
        "2026-06-30",
        {"2026-06-10": Outcome.UNRESOLVABLE, "2026-06-11": Outcome.PASS},
    )
    compared = {str(one.day.date): one.compared for one in told if one.compared}
    assert compared["2026-06-10"].not_installable
    assert compared["2026-06-11"].before == "replay-2026-06-04"
