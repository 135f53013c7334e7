"""A stack is called good only where everything that was run on it passes, and enough was run."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.harness import made_results
from tests.harness.conftest import ROOT
from trl_compat import advisories, report, results
from trl_compat.advisories import Catalogue
from trl_compat.cells.outcome import Outcome
from trl_compat.cli import cli
from trl_compat.report import known_good_files
from trl_compat.report.known_good import KnownGood, Release, known_good
from trl_compat.stacks.environments import cache

PPO, SILENT = "ppo-zero3-save", "zero3-gloo-unwaited-allgather"
LAST = {
    "python": "3.11",
    "torch": "2.13.0",
    "trl": "1.16.0",
    "transformers": "5.23.0",
    "deepspeed": "0.19.8",
    "accelerate": "1.15.0",
    "peft": "0.21.2",
    "as_of": "2026-11-19",
    "lock_sha256": None,
}


def stack(**changes: Any) -> results.StackResult:
    given = {**LAST, **changes}
    known = {n: given[n] for n in ("torch", "trl", "transformers", "deepspeed", "accelerate")}
    packages = {**known, "peft": given["peft"], "numpy": "2.4.6"}
    return results.StackResult.model_validate({"packages": packages, **given})


def cell(failure: str, variant: str, outcome: Outcome, fix: str = "", **more: Any) -> Any:
    name = more.get("stack", "s")
    return made_results.cell(
        id=f"{name}__{failure}__{variant}__{more.get('model', 'tiny-qwen2')}__{fix}",
        failure=failure,
        variant=variant,
        outcome=outcome,
        fixed=bool(fix),
        fix=fix or None,
        **more,
    )


def document(cells: list[Any], **stacks: results.StackResult) -> results.Results:
    made = made_results.document(*cells)
    return made.model_copy(update={"stacks": stacks or {"s": stack()}})


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    return loud(advisories.load(ROOT / "advisories", ROOT / "tests" / "reproductions"))


def loud(known: Catalogue) -> Catalogue:
    """Without what violates an invariant: these tests are not about which of it applies."""
    silent = {
        n for n, one in known.records.items() if any(s.violates for s in one.symptoms.values())
    }
    records = {name: one for name, one in known.records.items() if name not in silent}
    return known.model_copy(update={"records": records})


def everything(name: str = "s", **changed: Outcome) -> list[Any]:
    """Every default variant of every failure, passing if nothing else is said."""
    known = advisories.load(ROOT / "advisories", ROOT / "tests" / "reproductions")
    found = []
    for failure in known.failures:
        reproduction = known.reproduction(failure)
        for variant in reproduction.default or reproduction.variants:
            outcome = changed.get(failure.replace("-", "_"), Outcome.PASS)
            found.append(cell(failure, variant, outcome, stack=name))
    return found


def only(found: tuple[Release, ...]) -> Release:
    (release,) = found
    return release


def test_everything_that_was_run_passes(catalogue: Catalogue) -> None:
    cells = everything(ppo_zero3_save=Outcome.NOT_APPLICABLE)
    good = only(known_good(document(cells), catalogue)).as_it_is
    assert good is not None
    assert good.fixes == ()
    assert PPO not in good.executed.failures
    ran = sum(c.outcome is Outcome.PASS for c in cells)
    assert good.executed.sentence() == f"{ran} cells of 5 failures, 2 ranks (gloo)"


@pytest.mark.parametrize(
    "outcome",
    sorted(set(Outcome) - {Outcome.PASS, Outcome.NOT_APPLICABLE, Outcome.UNAVAILABLE}),
)
def test_any_other_outcome_keeps_it_from_being_good(outcome: Outcome, catalogue: Catalogue) -> None:
    release = only(known_good(document(everything(grpo_fsdp_ref_device=outcome)), catalogue))
    assert release.sets == ()
    assert any("grpo-fsdp-ref-device" in why for why in release.why_not)


def test_nothing_run_is_not_good(catalogue: Catalogue) -> None:
    absent = [c.model_copy(update={"outcome": Outcome.NOT_APPLICABLE}) for c in everything()]
    unreached = [c.model_copy(update={"outcome": Outcome.UNAVAILABLE}) for c in everything()]
    for cells in ([], absent, unreached):
        release = only(known_good(document(cells), catalogue))
        assert (release.sets, release.why_not) == ((), ("nothing was run on it",))


def test_what_is_known_and_was_not_run_stops_it(catalogue: Catalogue) -> None:
    older = stack(deepspeed="0.19.6")  # of these the advisories know the silent corruption
    cells = [c for c in everything() if c.failure != SILENT]
    release = only(known_good(document(cells, s=older), catalogue))
    assert release.sets == ()
    assert release.why_not == (f"{SILENT} is known for these versions and was not run on it",)
    # The release that mended it is good without that cell.
    assert only(known_good(document(cells, s=stack()), catalogue)).as_it_is is not None
    assert only(known_good(document(everything(), s=older), catalogue)).as_it_is is not None


def test_a_failure_that_was_run_in_part_stops_it(catalogue: Catalogue) -> None:
    older = stack(trl="1.12.0", transformers="5.16.1")
    cells = [c for c in everything() if (c.failure, c.variant) != (PPO, "zero2")]
    release = only(known_good(document(cells, s=older), catalogue))
    assert release.why_not == (f"{PPO} is known for these versions and was not run whole on it",)


def test_with_a_fix_it_is_good_with_fixes(catalogue: Catalogue) -> None:
    older = stack(trl="1.12.0", transformers="5.16.1")
    cells = everything(ppo_zero3_save=Outcome.REPRODUCED)
    assert only(known_good(document(cells, s=older), catalogue)).sets == ()
    half = [*cells, cell(PPO, "zero3", Outcome.PASS, "save-through-engine")]
    assert only(known_good(document(half, s=older), catalogue)).sets == ()
    whole = [*half, cell(PPO, "zero2", Outcome.PASS, "save-through-engine")]
    release = only(known_good(document(whole, s=older), catalogue))
    assert release.as_it_is is None
    assert release.with_fixes is not None
    (fix,) = release.with_fixes.fixes
    assert (fix.failure, fix.fix, fix.standalone) == (PPO, "save-through-engine", False)
    assert "the PPO trainer" in fix.when
    assert release.why_not == (f"{PPO} fails without a fix",)
    assert release.with_fixes.executed.cells == len(whole)


def test_a_wrong_fix_that_passes_proves_nothing(catalogue: Catalogue) -> None:
    older = stack(trl="1.12.0", transformers="5.16.1")
    cells = everything(ppo_zero3_save=Outcome.REPRODUCED)
    cells += [cell(PPO, v, Outcome.PASS, "any", wrong_fix=True) for v in ("zero3", "zero2")]
    assert only(known_good(document(cells, s=older), catalogue)).sets == ()


def test_a_fix_must_pass_in_the_same_place(catalogue: Catalogue) -> None:
    older = stack(trl="1.12.0", transformers="5.16.1")
    cells = everything(ppo_zero3_save=Outcome.REPRODUCED)
    cells += [
        cell(PPO, v, Outcome.PASS, "save-through-engine", model="tiny-mistral")
        for v in ("zero3", "zero2")
    ]
    assert only(known_good(document(cells, s=older), catalogue)).sets == ()


def test_the_newest_good_stack_is_taken(catalogue: Catalogue) -> None:
    stacks = {
        "new": stack(torch="2.15.0"),
        "newer": stack(torch="2.16.0"),
        "old": stack(transformers="5.22.0"),
    }
    cells = [*everything("new"), *everything("old")]
    cells += everything("newer", online_dpo_ref_none=Outcome.CRASH)
    release = only(known_good(document(cells, **stacks), catalogue))
    assert release.as_it_is is not None
    assert release.as_it_is.stack == "new"


def test_a_stack_with_fixes_is_named_only_if_it_is_newer(catalogue: Catalogue) -> None:
    def fixed(name: str) -> list[Any]:
        made = cell(SILENT, "as-released", Outcome.PASS, "wait-for-every-handle", stack=name)
        return [*everything(name, zero3_gloo_unwaited_allgather=Outcome.REPRODUCED), made]

    stacks = {"a": stack(torch="2.14.0"), "b": stack(torch="2.15.0")}
    found = only(known_good(document([*everything("a"), *fixed("b")], **stacks), catalogue))
    assert [one.stack for one in found.sets] == ["a", "b"]
    found = only(known_good(document([*fixed("a"), *everything("b")], **stacks), catalogue))
    assert [one.stack for one in found.sets] == ["b"]
    found = only(known_good(document([*fixed("a"), *fixed("b")], **stacks), catalogue))
    assert [one.stack for one in found.sets] == ["b"]


def test_other_variants_that_fail_are_named(catalogue: Catalogue) -> None:
    extra = cell(PPO, "zero3-checkpoint", Outcome.CRASH)
    good = only(known_good(document([*everything(), extra]), catalogue)).as_it_is
    assert good is not None
    assert good.failing == (f"{PPO} (zero3-checkpoint) is crash",)


def test_commits_are_no_releases(catalogue: Catalogue) -> None:
    tree = stack(trl="git+https://github.com/huggingface/trl@724acb971")
    assert known_good(document(everything(), s=tree), catalogue) == ()


def test_the_files_are_exact_and_the_commands_work(catalogue: Catalogue, tmp_path: Path) -> None:
    older = stack(trl="1.12.0", transformers="5.16.1", torch="2.13.0+cpu", deepspeed="0.19.6")
    cells = everything(
        zero3_gloo_unwaited_allgather=Outcome.REPRODUCED, ppo_zero3_save=Outcome.PASS
    )
    cells.append(cell(SILENT, "as-released", Outcome.PASS, "wait-for-every-handle"))
    made = document(cells, s=older)
    (release,) = known_good(made, catalogue)
    files = known_good_files.files([release])
    table = files.pop("known-good.md")
    assert sorted(files) == [
        "known-good/trl-1.12.0-with-fixes.constraints.txt",
        "known-good/trl-1.12.0-with-fixes.requirements.txt",
    ]
    pins = [x for x in files[sorted(files)[1]].splitlines() if not x.startswith("#")]
    assert pins == [
        "trl==1.12.0",
        "torch==2.13.0",
        "transformers==5.16.1",
        "deepspeed==0.19.6",
        "accelerate==1.15.0",
        "peft==0.21.2",
    ]
    assert "numpy==2.4.6" in files[sorted(files)[0]].splitlines()
    report.render_all(tmp_path, made, catalogue)
    assert report.outdated(tmp_path, made, catalogue) == []
    assert (tmp_path / "known-good.md").read_text() == table
    assert release.with_fixes is not None
    (fix,) = release.with_fixes.fixes
    command = known_good_files.command(fix, release.with_fixes, "reports/")
    assert command in table
    words = command.replace("reports/", f"{tmp_path}/").split()[1:]
    done = CliRunner().invoke(cli, ["--project", str(ROOT), *words])
    assert done.exit_code == 0, done.output
    assert "zero3_gloo_unwaited_allgather.apply()" in done.output


def test_the_lock_of_the_run_lies_beside_and_what_is_no_longer_good_goes(
    catalogue: Catalogue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRL_COMPAT_CACHE", str(tmp_path / "cache"))
    text = b"trl==1.16.0 \\\n    --hash=sha256:00\n"
    locks = cache.folder("locks")
    (locks / "0123.txt").write_bytes(text)
    (locks / "4567.txt").write_bytes(b"another")
    digest = hashlib.sha256(text).hexdigest()
    folder = tmp_path / "reports"
    lock = folder / "known-good" / "trl-1.16.0.lock.txt"
    made = document(everything(), s=stack(lock_sha256=digest))
    report.render_all(folder, made, catalogue)
    assert lock.read_bytes() == text
    (locks / "0123.txt").unlink()
    report.render_all(folder, made, catalogue)  # on a machine that did not run it
    assert lock.read_bytes() == text
    report.render_all(folder, document(everything(), s=stack(lock_sha256="other")), catalogue)
    assert not lock.exists()
    none = document([], s=stack())
    assert "known-good/trl-1.16.0.requirements.txt" in report.outdated(folder, none, catalogue)
    report.render_all(folder, none, catalogue)
    assert report.outdated(folder, none, catalogue) == []
    assert list((folder / "known-good").iterdir()) == []
    assert "TRL 1.16.0: nothing was run on it" in (folder / "known-good.md").read_text()


def test_of_the_committed_results_every_claim_is_true(catalogue: Catalogue) -> None:
    committed = results.read(ROOT / "reports" / "results.json")
    assert committed is not None
    releases = known_good(committed, catalogue)
    sets: list[KnownGood] = [one for release in releases for one in release.sets]
    assert sets
    for one in sets:
        mended = {fix.failure for fix in one.fixes}
        for found in committed.cells:
            default = catalogue.reproduction(found.failure).default
            if found.stack != one.stack or found.fixed or found.variant not in default:
                continue
            allowed = {Outcome.PASS, Outcome.NOT_APPLICABLE, Outcome.UNAVAILABLE}
            assert found.outcome in allowed or found.failure in mended, found.id
