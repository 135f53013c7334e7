"""explain and fix: an advisory in words, and the fix for the versions that one has."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from tests.harness.conftest import ROOT
from tests.harness.written import committed
from trl_compat.advisories import load as load_advisories
from trl_compat.advisories import remedies
from trl_compat.report import account, explanation, wording
from trl_compat.report.account import Account
from trl_compat.shipped import releases

CLI = Path(sys.executable).with_name("trl-compat")
OURS = load_advisories(ROOT / "advisories", ROOT / "tests" / "reproductions")
PPO = OURS["ppo-zero3-save"]
FSDP = OURS["grpo-fsdp-ref-device"]


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(CLI), *words], capture_output=True, text=True, check=False, cwd=ROOT)


def versions(**given: str) -> dict[str, Version]:
    return {package: Version(text) for package, text in given.items()}


def test_a_covered_version_needs_the_fix() -> None:
    found = remedies.remedy(PPO, versions(trl="0.12.2", transformers="4.46.3"))
    assert found.fix is PPO.fixes[0]
    assert found.certain
    assert [scope.symptom for scope in found.hit] == ["no-engine-method"]


def test_a_release_outside_every_range_needs_none() -> None:
    found = remedies.remedy(PPO, versions(trl="1.16.0"))
    assert (found.fix, found.hit, found.certain) == (None, (), True)


def test_an_unknown_version_makes_it_uncertain_and_never_not_needed() -> None:
    found = remedies.remedy(PPO, {})
    assert found.fix is not None
    assert not found.certain


def test_a_fix_is_offered_only_to_the_versions_that_it_is_for() -> None:
    assert remedies.remedy(FSDP, versions(trl="0.14.0"), "prepare-fsdp").fix is None
    assert remedies.remedy(FSDP, versions(trl="0.16.1"), "prepare-fsdp").fix is not None


def test_what_is_printed_is_python_to_paste() -> None:
    done = run("fix", "ppo-zero3-save", "--trl", "0.12.2", "--transformers", "4.46.3")
    assert (done.returncode, done.stderr) == (0, "")
    compile(done.stdout, "pasted", "exec")
    assert "# Needed with trl 0.12.2, transformers 4.46.3 (PPO, ZeRO-3)." in done.stdout
    assert done.stdout.endswith("ppo_zero3_save.apply()  # before the trainer is made\n")


def test_a_fix_that_is_not_needed_is_not_printed() -> None:
    done = run("fix", "ppo-zero3-save", "--trl", "1.16.0")
    assert done.returncode == 0
    assert "Not needed with trl 1.16.0" in done.stdout
    assert "import" not in done.stdout


@pytest.mark.parametrize("failure", OURS.failures)
def test_every_fix_of_every_failure_prints_python(failure: str) -> None:
    for fix in OURS[failure].fixes:
        compile(fix.snippet, fix.name, "exec")


@pytest.mark.parametrize("failure", OURS.failures)
def test_every_fix_has_a_form_that_does_without_this_package(failure: str) -> None:
    for fix in OURS[failure].fixes:
        assert fix.standalone, f"{fix.name} has none"
        tree = ast.parse(fix.standalone)
        for node in ast.walk(tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                assert "trl_compat" not in ast.unparse(node), fix.name
        assert fix.standalone.startswith("# "), f"{fix.name} does not say for which releases it is"
        assert "before" in fix.standalone.split("\n\n")[0], f"{fix.name} does not say when"


@pytest.mark.parametrize("failure", OURS.failures)
def test_the_standalone_form_is_printed_for_every_affected_release(failure: str) -> None:
    """As it stands in the record, which is what cells execute."""
    for package, version in affected_releases(failure):
        given = {"trl": "0.12.2", "transformers": "4.46.3", "deepspeed": "0.15.2"}
        given |= {"accelerate": "1.3.0", package: str(version)}
        have = versions(**given)
        found = remedies.remedy(OURS[failure], have)
        if not found.hit:
            continue  # this release with others
        assert found.fix is not None, f"{failure} on {given}"
        assert found.fix.standalone


def affected_releases(failure: str) -> list[tuple[str, Version]]:
    """Every release that a range of the failure holds, with its package."""
    ranges = [item for scope in OURS[failure].affected for item in scope.versions.items()]
    return [
        (package, version)
        for package, range_ in ranges
        for version in releases.known().final(package)
        if version in SpecifierSet(range_)
    ]


def test_what_is_printed_standalone_is_the_text_of_the_record() -> None:
    for failure, *words in (
        ("ppo-zero3-save", "--trl", "0.10.1"),
        ("unwrap-double-yield", "--trl", "1.16.0"),
        ("grpo-fsdp-ref-device", "--trl", "0.14.0"),
        ("grpo-fsdp-ref-device", "--trl", "0.17.0", "--fix", "whole-on-device"),
    ):
        done = run("fix", failure, *words, "--standalone")
        assert (done.returncode, done.stderr) == (0, "")
        wanted = {fix.name: fix.standalone for fix in OURS[failure].fixes}
        name = words[-1] if "--fix" in words else OURS[failure].fixes[0].name
        assert done.stdout.endswith(f"\n{wanted[name]}")


def test_the_list_names_every_fix() -> None:
    listed = run("fix", "--list").stdout
    for failure in OURS.failures:
        assert f"{failure}: " in listed
        assert all(f"  {fix.name}: " in listed for fix in OURS[failure].fixes)
    assert "ppo-zero3-save" not in run("fix", "grpo-fsdp-ref-device", "--list").stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["explain", "ppo-save"], "unknown failure 'ppo-save'; did you mean 'ppo-zero3-save'?"),
        (["fix", "ppo-zero-save"], "did you mean 'ppo-zero3-save'?"),
        (["fix"], "name a FAILURE; --list shows all of them"),
        (["fix", "ppo-zero3-save", "--trl", "new"], "--trl new: not a version"),
        (
            ["fix", "grpo-fsdp-ref-device", "--fix", "shard-reference"],
            "did you mean 'shard-the-reference'?",
        ),
    ],
)
def test_wrong_usage_is_one_sentence_that_helps(words: list[str], said: str) -> None:
    done = run(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_explaining_reads_from_symptom_to_references() -> None:
    headings = [heading for heading, _ in explanation.sections(PPO, Account())]
    assert headings == [
        "What happens",
        "What you see",
        "Who is affected",
        "Why",
        "The fix: save-through-engine",
        "What does not fix it",
        "References",
        "See it fail",
    ]


def test_proofs_come_from_the_results_and_are_not_made_up() -> None:
    assert "Proven in " in run("explain", "ppo-zero3-save").stdout
    without = "\n".join(text for _, text in explanation.sections(PPO, Account()))
    assert "Proven" not in without
    assert "(Not run in the available results.)" in without


@pytest.mark.parametrize("failure", sorted(OURS.records))
def test_every_advisory_can_be_explained(failure: str) -> None:
    text = "\n".join(text for _, text in explanation.sections(OURS[failure], Account()))
    assert all(len(line) <= 100 or "http" in line or "    " in line for line in text.splitlines())


def test_conditions_are_told_without_what_only_a_reproduction_has() -> None:
    asked = {"strategy": "deepspeed", "zero_stage": 3, "trainer": ("XPO", "PPO"), "facet": "x"}
    assert wording.conditions(asked) == "ZeRO-3, XPO or PPO"
    assert wording.conditions({"strategy": "fsdp", "peft": True}) == "FSDP, with PEFT"


def test_outside_a_checkout_the_packages_own_records_are_read(tmp_path: Path) -> None:
    done = subprocess.run(
        [str(CLI), "fix", "ppo-zero3-save", "--trl", "0.12.2"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "ppo_zero3_save.apply()" in done.stdout


def outside(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(CLI), *words], capture_output=True, text=True, check=False, cwd=folder
    )


@pytest.mark.parametrize("failure", OURS.failures)
def test_outside_a_checkout_the_proofs_are_those_that_were_shipped(
    failure: str, tmp_path: Path
) -> None:
    # The working tree may hold other results than were committed and compiled.
    told = account.of(committed(tmp_path / "git"), OURS[failure])
    assert told.fixes
    done = outside(tmp_path, "explain", failure)
    assert (done.returncode, done.stderr) == (0, "")
    assert "in the available results" not in done.stdout
    said = " ".join(done.stdout.split())
    for line in (*told.release_summary, *told.evidence, *told.fixes.values()):
        assert " ".join(line.split())[1:] in said
    assert "from the results shipped with trl-compat " in said
    assert f"In a clone of trl-compat: nox -s matrix -- --failure {failure}" in said


def test_results_of_somebody_elses_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "reports").mkdir()
    (tmp_path / "reports" / "results.json").write_text('{"of": "another tool"}')
    done = outside(tmp_path, "explain", "ppo-zero3-save")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_failure_without_results_says_so() -> None:
    assert account.shipped("a-new-one") == Account()


def test_a_pattern_reads_like_the_message() -> None:
    assert wording.message(r"^'\w+' object has no attribute 'f\(\)'$") == (
        "'…' object has no attribute 'f()'"
    )


def test_torch_is_not_imported_for_an_answer() -> None:
    code = (
        "import sys; sys.argv = ['trl-compat', 'fix', 'ppo-zero3-save'];"
        "from trl_compat.cli import cli; cli(standalone_mode=False);"
        "sys.exit(bool({'torch', 'trl', 'pytest'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False, capture_output=True)
    assert done.returncode == 0, done.stderr
