"""No release that is recommended anywhere brings another known failure, or breaks a requirement.

What is checked is the printed text: each release that a sentence names, and each in a range that it
names, is put into the stack, and the records are asked again.  That is done by hand here, not by
the module that made the advice.
"""

from __future__ import annotations

import functools
import itertools
import random
import re
from collections.abc import Iterator, Mapping

import pytest
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from tests.harness.commands import run
from tests.harness.conftest import ROOT
from trl_compat.doctor.diagnosis import FOUND, Status, examine, status_of
from trl_compat.matching.applies import matches
from trl_compat.packages import PACKAGES
from trl_compat.ranges import inside
from trl_compat.shipped import records, releases, requires
from trl_compat.stacks import matrix
from trl_compat.stacks.sources.source import Source
from trl_compat.upgrade import constraints
from trl_compat.upgrade.recommend import Adviser
from trl_compat.usage import vocabulary
from trl_compat.usage.conditions import Named
from trl_compat.usage.strategies import conditions_of

RECORDS = records.shipped()
WORDS = vocabulary.shipped()
KNOWN = releases.known()
# Of the many stacks of the grids those of one, a stack for each minor release of TRL.
ALL = matrix.load(ROOT / "matrix.yaml").stacks
STACKS = {name: stack for name, stack in ALL.items() if stack.grid in ("", "eras")}
TRAINERS = (None, "PPO", "GRPO", "Online DPO", "SFT")
STRATEGIES = ((), ("zero2",), ("zero3",), ("fsdp1",), ("fsdp2",), ("ddp",))
USAGES = [
    *((trainer, strategy, None) for trainer in TRAINERS for strategy in STRATEGIES),
    ("XPO", ("zero3",), True),
    ("Online DPO", ("zero2",), True),
    ("SFT", ("zero3",), True),
]
SOME = 4
Have = Mapping[str, Version]
RELEASE = r"(\w+) (?:to )?(\d[\w.]*\w)(?: or (?:later|earlier), (?:up|down) to (\d[\w.]*\w))?"
NEWEST = r"(?:, the newest known release)?"
ADVICE = re.compile(
    rf"(?:Upgrade|Take) {RELEASE}{NEWEST}(?:, together with {RELEASE}{NEWEST})?[ .]"
)


def source(
    have: Have, commits: Mapping[str, str] | None = None, unpinned: tuple[str, ...] = ()
) -> Source:
    return Source(
        name="a stack",
        kind="requirements",
        versions={package: str(version) for package, version in have.items()},
        commits=commits or {},
        unpinned=dict.fromkeys(unpinned, ""),
    )


def usage(trainer: str | None, strategy: tuple[str, ...], peft: bool | None) -> Named:
    named: dict[str, tuple[str | int | bool, ...]] = dict(conditions_of(strategy))
    if trainer is not None:
        named["trainer"] = (trainer,)
    if peft is not None:
        named["peft"] = (peft,)
    return named


def failures(of: Source, named: Named, unknown: bool = False) -> set[str]:
    """What applies, or does so under a condition that was not named, or is hidden.

    With ``unknown`` also that of which a version that is not known decides.
    """
    found = {}
    for name, record in RECORDS.items():
        if mine := matches(record, of, named):
            found[name] = status_of(record, mine, of, named, WORDS)[0]
    return {name for name, status in found.items() if unknown or status is not Status.CANNOT_TELL}


def unmet(have: Have) -> set[tuple[str, str]]:
    return {
        (package, other)
        for package, version in have.items()
        for other, range_ in requires.known()[package].get(version.public, {}).items()
        if other in have and not inside(have[other], range_)
    }


def named_releases(text: str) -> list[tuple[str, list[Version]]]:
    """The releases that a sentence recommends, by package."""
    found = ADVICE.match(text)
    assert found, f"nobody can read: {text}"
    parts = (found.groups()[:3], found.groups()[3:])
    ranged = []
    for package, one, end in parts:
        if package:
            low, high = sorted((Version(one), Version(end or one)))
            all_of_it = [v for v in KNOWN.final(package) if low <= v <= high]
            assert Version(one) in all_of_it
            ranged.append((package, all_of_it))
    return ranged


def check(
    have: Have,
    named: Named,
    commits: Mapping[str, str] | None = None,
    unpinned: tuple[str, ...] = (),
) -> int:
    """Examines a stack and puts every recommended release into it; how many sentences there are."""
    mine = source(have, commits, unpinned)
    before, broken = failures(mine, named, unknown=True), unmet(have)
    said = 0
    for diagnosis in examine(mine, named).diagnoses:
        if diagnosis.status not in FOUND:
            continue
        assert diagnosis.actions, f"{diagnosis.record.id}: nothing to do, and it does not say so"
        for action in diagnosis.actions:
            if not action.text.startswith(("Upgrade", "Take")):
                continue
            said += 1
            ranged = named_releases(action.text)
            for versions in itertools.product(*(all_of_it for _, all_of_it in ranged)):
                to = dict(zip((package for package, _ in ranged), versions, strict=True))
                after = {**have, **to}
                left = {p: c for p, c in (commits or {}).items() if p not in to}
                then = failures(source(after, left, unpinned), named)
                assert diagnosis.record.id not in then, f"mends nothing: {action.text}"
                assert then <= before, f"{action.text} brings {then - before}"
                assert unmet(after) <= broken, f"{action.text} breaks {unmet(after) - broken}"
    return said


def of_stack(name: str) -> tuple[Have, Mapping[str, str]]:
    stack = STACKS[name]
    have = {p: v for p in PACKAGES if (v := stack.version(p)) is not None}
    commits = {p: f"git@{c}" for p in PACKAGES if (c := stack.commit(p)) is not None}
    return have, commits


@pytest.mark.parametrize(("number", "name"), list(enumerate(STACKS)))
def test_on_no_stack_does_advice_lead_into_the_next_failure(number: int, name: str) -> None:
    have, commits = of_stack(name)
    # Every usage for the stacks that were written by hand, some in turn for those of the grid.
    some = USAGES[number % SOME :: SOME] if STACKS[name].grid else USAGES
    assert sum(check(have, usage(*one), commits) for one in some) >= 0


def test_there_is_advice_to_check() -> None:
    said = sum(check(of_stack(name)[0], {}) for name in STACKS)
    assert said > 10


def random_stacks(
    seed: int, count: int
) -> Iterator[tuple[dict[str, Version], Named, tuple[str, ...]]]:
    """Real releases of the last years, thrown together; some not there, some not pinned."""
    drawn = random.Random(seed)
    pools = {p: [v for v in KNOWN.final(p) if day(p, v) > "2024"] for p in PACKAGES}
    for _ in range(count):
        have = {package: drawn.choice(pool) for package, pool in pools.items()}
        for package in ("deepspeed", "peft"):
            if drawn.random() < 0.15:
                del have[package]
        unpinned = [p for p in have if p != "trl" and drawn.random() < 0.1]
        for package in unpinned:
            del have[package]
        yield have, usage(*drawn.choice(USAGES)), tuple(unpinned)


def test_on_no_real_versions_does_advice_lead_into_the_next_failure() -> None:
    said = 0
    for have, named, unpinned in random_stacks(seed=7, count=200):
        said += check(have, named, unpinned=unpinned)
    assert said > 100


@functools.cache
def partly(given: tuple[tuple[str, str], ...], package: str, version: Version) -> frozenset[str]:
    """What applies, or may, where only some versions are known."""
    versions = {**dict(given), package: str(version)}
    mine = Source("given", "requirements", versions=versions, complete=False)
    return frozenset(
        name if certain else f"perhaps {name}"
        for name, record in RECORDS.items()
        for certain in {not match.unknown for match in matches(record, mine, {})}
    )


@pytest.mark.parametrize("failure", sorted(RECORDS))
def test_constraints_bring_no_failure_that_the_nearest_affected_release_has_not(
    failure: str,
) -> None:
    for given in ({}, {"trl": "0.15.2"}):
        have = tuple(given.items())
        for way in constraints.avoid(RECORDS[failure], given, {}, RECORDS).ways:
            known = [v for v in KNOWN.final(way.package) if day(way.package, v) > "2024"]
            found = [partly(have, way.package, version) for version in known]
            hit = [at for at, names in enumerate(found) if names & {failure, f"perhaps {failure}"}]
            allowed = SpecifierSet(way.specifier)
            for at, version in enumerate(known):
                if not allowed.contains(version):
                    continue
                assert at not in hit, f"{way} allows {version}"
                edges = [
                    found[place] for place in hit if abs(place - at) == abs(near(hit, at) - at)
                ]
                certain = {name for name in found[at] if not name.startswith("perhaps ")}
                assert any(certain <= edge for edge in edges), f"{way} at {version}"
                versions = {p: Version(v) for p, v in given.items()} | {way.package: version}
                assert unmet(versions) == set(), f"{way} at {version}"


def day(package: str, version: Version) -> str:
    return KNOWN.dates[package][str(version)]


def near(places: list[int], place: int) -> int:
    return min(places, key=lambda other: abs(other - place))


def advice(failure: str, named: Named | None = None, /, **have: str) -> list[str]:
    """What is advised where only the crashes count: of silent faults new ones are found."""
    versions = {package: Version(version) for package, version in have.items()}
    crashes = {
        n: r for n, r in RECORDS.items() if n == failure or r.severity != "silent-wrong-result"
    }
    found = Adviser(crashes, source(versions), named or {}).ways(RECORDS[failure])
    return [way.text for way in found.ways] or [found.none]


OLD = {
    "torch": "2.4.1",
    "trl": "0.12.2",
    "transformers": "4.46.3",
    "deepspeed": "0.15.2",
    "accelerate": "0.34.2",
    "peft": "0.13.2",
}


def test_a_way_that_brings_two_failures_is_not_named_but_why() -> None:
    (text,) = advice("zero3-gloo-unwaited-allgather", **OLD)
    assert text.startswith(
        "No upgrade that fixes it is safe here: deepspeed 0.19.8 was released more than a year "
        "after trl 0.12.2, brings zero-no-sync-grad-accum (if you use ZeRO-2 or ZeRO-3 or ZeRO-1), "
        "brings zero3-register-hooks-rename"
    )


def test_what_a_release_requires_comes_along_by_name() -> None:
    (text,) = advice("grpo-zero3-optimizer", **OLD)
    assert text == (
        "Upgrade trl to 0.18.0 or later, up to 0.18.2, together with transformers to 4.50.3 "
        "(alone: trl 0.18.0 requires transformers>=4.50.0)."
    )


def test_a_range_ends_before_the_next_failure() -> None:
    (text,) = advice("online-dpo-ref-none", **OLD)
    assert text == "Upgrade trl to 0.13.0."  # 0.14.0 has GRPO's reference model on the CPU
    gone = advice("online-dpo-ref-none", {"trainer": ("XPO",), "strategy": ("ddp",)}, **OLD)
    assert "1.14" not in gone[0]  # which has no XPO any more


def test_the_condition_that_was_named_decides_from_where_on() -> None:
    have = {**OLD, "trl": "0.17.0", "transformers": "4.51.3", "accelerate": "1.6.0"}
    named: Named = {"trainer": ("GRPO",), "strategy": ("fsdp",), "fsdp_version": (1,)}
    assert advice("grpo-fsdp-ref-device", named, **have)[0].startswith("Upgrade trl to 0.18.0")


def test_an_open_end_goes_as_far_as_releases_are_known() -> None:
    have = {"trl": "0.28.0", "transformers": "5.3.0", "torch": "2.10.0", "accelerate": "1.12.0"}
    texts = advice("trl-optional-deps-truthy-tf53", {"strategy": ("ddp",)}, **have)
    assert f"up to {KNOWN.newest('trl')}, the newest known release" in texts[0]
    assert texts[-1] == (
        "Take transformers 5.2.0 or earlier, down to 4.56.2."  # which trl 0.28.0 requires
    )


def test_a_release_between_what_is_wrong_and_what_is_right_is_not_named() -> None:
    """torch 2.6 was seen to be wrong and 2.10 right; of those between nobody knows."""
    have = {**OLD, "torch": "2.6.0", "trl": "1.16.0", "transformers": "5.23.0"}
    have |= {"deepspeed": "0.19.8", "accelerate": "1.15.0", "peft": "0.21.2"}
    old_python = Source("x", "environment", versions=have, python="3.11.9")
    found = Adviser(RECORDS, old_python, {"strategy": ("ddp",)})
    (way, *_) = found.ways(RECORDS["trl-triton-setuptools-torch26"]).ways
    assert way.text.startswith("Upgrade torch to 2.10.0")


def test_a_release_that_this_python_cannot_have_is_not_named() -> None:
    have = {**OLD, "trl": "0.28.0", "transformers": "4.57.6", "torch": "2.6.0", "peft": "0.18.1"}
    have |= {"accelerate": "1.12.0", "deepspeed": "0.18.5"}
    for python, has in (("3.10.4", False), ("3.11.9", True)):
        mine = Source("x", "environment", versions=have, python=python)
        found = Adviser(RECORDS, mine, {"trainer": ("GRPO",), "fsdp_version": (2,)})
        texts = " ".join(w.text for w in found.ways(RECORDS["grpo-fsdp-ref-device"]).ways)
        assert ("1.15.0" in texts) is has, texts  # which requires Python 3.11


def test_what_is_not_known_is_said() -> None:
    mine = Source("given", "requirements", versions={"trl": "0.12.2"}, complete=False)
    (way,) = Adviser(RECORDS, mine, {}).ways(RECORDS["online-dpo-ref-none"]).ways
    assert way.text.endswith(
        "Not checked: failures that depend on the release of torch, transformers, deepspeed, "
        "accelerate, peft."
    )


def test_a_failure_that_every_version_of_an_unpinned_package_meets_counts() -> None:
    """Below transformers 5 PPO's saving fails in one way, from 5 on in another."""
    mine = source({"trl": Version("0.9.6")}, unpinned=("transformers", "deepspeed"))
    named: Named = {"strategy": ("deepspeed",), "zero_stage": (3,)}
    found = Adviser(RECORDS, mine, {**named, "trainer": ("PPO",)})
    assert found.ways(RECORDS["grpo-zero3-optimizer"]).ways == ()
    assert "ppo-zero3-save" in found.ways(RECORDS["grpo-zero3-optimizer"]).none


def test_from_a_commit_the_way_is_a_release_that_the_record_names() -> None:
    have, commits = of_stack("trl-git-6a05feff0")
    found = Adviser(RECORDS, source(have, commits), {}).ways(RECORDS["online-dpo-ref-none"])
    assert [way.text[:26] for way in found.ways] == ["Upgrade trl to 0.13.0 or l"]


def test_constraints_name_the_patch_first_where_they_take_the_feature_away() -> None:
    said = run("constraints", "--avoid", "ppo-zero3-save").stdout.splitlines()
    assert said[1].startswith("# to keep your versions, patch: trl-compat fix ppo-zero3-save")
    assert said[2] == "trl>=0.9.2,<0.10.1"
    assert said[-1].startswith(
        "# or: trl>=1.13.0  # these releases do not have the failing feature"
    )
    alone = run("constraints", "--avoid", "ppo-zero3-save", "--given", "trl==0.12.2")
    assert (alone.returncode, alone.stdout) == (2, "")
    assert "to keep your versions, patch: trl-compat fix ppo-zero3-save" in alone.stderr


def test_fix_says_what_to_do_where_there_is_no_patch() -> None:
    versions = ("--trl", "0.24.0", "--transformers", "5.2.0")
    done = run("fix", "trl-warnings-issued-tf51", *versions)
    assert done.returncode == 0
    assert "no patch is known" in done.stdout
    assert "# Upgrade trl to 0.28.0" in done.stdout
    compile(done.stdout, "pasted", "exec")


def test_an_option_is_named_only_where_it_is_a_way() -> None:
    named: Named = {"trainer": ("GRPO",), "fsdp_version": (1,)}
    for trl, is_way in (("0.15.2", False), ("0.16.1", True)):
        have = {**OLD, "trl": trl, "transformers": "4.49.0", "accelerate": "1.6.0"}
        versions = {package: Version(version) for package, version in have.items()}
        (one,) = [
            diagnosis
            for diagnosis in examine(source(versions), named).diagnoses
            if diagnosis.record.id == "grpo-fsdp-ref-device"
        ]
        assert any(action.text.startswith("Set beta=0.0") for action in one.actions) is is_way
