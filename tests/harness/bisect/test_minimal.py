"""The smallest set of package moves: found, its edges, its corners, and what is not proven."""

from __future__ import annotations

import pytest
from packaging.version import Version

from tests.harness.bisect.bench import Bench, verdict
from trl_compat.bisect import minimal
from trl_compat.bisect.minimal_answer import Minimal, sentence, text
from trl_compat.cells.outcome import Outcome
from trl_compat.cells.verdict import Verdict
from trl_compat.errors import BadInput
from trl_compat.running import matrix_run
from trl_compat.stacks.matrix import Stack

REST = "torch: 2.4.1, accelerate: 0.34.2"
OLD = "trl: 0.11.4, transformers: 4.44.2, deepspeed: 0.15.1, peft: 0.12.0"
NEW = "trl: 0.12.1, transformers: 4.46.3, deepspeed: 0.15.2, peft: 0.13.2"
PAIR = f"""
  works: {{as_of: 2024-10-20, {REST}, {OLD}}}
  breaks: {{as_of: 2024-12-12, {REST}, {NEW}}}
profiles:"""


@pytest.fixture
def pair(bisection: Bench) -> Bench:
    path = bisection.where.matrix_file
    path.write_text(path.read_text().replace("profiles:", PAIR.strip("\n"), 1))
    return bisection


def isolate(bench: Bench, good: str = "works", bad: str = "breaks") -> Minimal:
    request = minimal.Request(failure="saving", good_stack=good, bad_stack=bad)
    options = matrix_run.Options(jobs=1, command="trl-compat bisect")
    return minimal.run(bench.where, request, options, bench.said.append)


def fails_if(**from_: str) -> object:
    """Fails where each of the packages has at least this release."""

    def judge(stack: Stack, _: int) -> Verdict:
        there = (Version(getattr(stack, p)) >= Version(v) for p, v in from_.items())
        return verdict(Outcome.REPRODUCED if all(there) else Outcome.PASS)

    return judge


def test_two_packages_together(pair: Bench) -> None:
    pair.judge = fails_if(trl="0.12.0", transformers="4.45.1")  # type: ignore[assignment]
    found = isolate(pair)
    assert found.causes == ("trl", "transformers")
    assert found.differ == ("trl", "transformers", "deepspeed", "peft")
    assert sentence(found) == (
        "saving (zero3, tiny-qwen2, 2 ranks): between works and breaks, breaks if and only if "
        "trl ≥ 0.12.0 and transformers ≥ 4.45.1."
    )
    assert len(found.corners) == 4
    assert found.not_varied == ("torch", "accelerate")
    assert "not varied, so not proven for others: torch, accelerate" in text(found)


def test_one_package_alone_has_no_corners(pair: Bench) -> None:
    pair.judge = fails_if(peft="0.13.0")  # type: ignore[assignment]
    found = isolate(pair)
    assert (found.causes, found.corners) == (("peft",), ())
    assert "breaks if and only if peft ≥ 0.13.0" in sentence(found)


def test_a_downward_move_is_said_the_other_way(pair: Bench) -> None:
    def judge(stack: Stack, _: int) -> Verdict:
        older = Version(stack.trl) <= Version("0.11.4")
        return verdict(Outcome.REPRODUCED if older else Outcome.PASS)

    pair.judge = judge
    assert "if and only if trl ≤ 0.11.4" in sentence(isolate(pair, "breaks", "works"))


def test_a_corner_that_contradicts_is_said(pair: Bench) -> None:
    def judge(stack: Stack, _: int) -> Verdict:
        trl, transformers = Version(stack.trl), Version(stack.transformers)
        both = trl >= Version("0.12.0") and transformers >= Version("4.45.1")
        # Another way to fail, between the ends of each axis only.
        other = (str(trl), str(transformers)) == ("0.11.4", "4.45.0")
        return verdict(Outcome.REPRODUCED if both or other else Outcome.PASS)

    pair.judge = judge
    found = isolate(pair)
    assert not found.holds
    assert "trl 0.11.4, transformers 4.45.0 contradicts it" in sentence(found)


def test_what_cannot_be_judged_is_not_claimed(pair: Bench) -> None:
    plain = fails_if(trl="0.12.0", transformers="4.45.1")

    def judge(stack: Stack, number: int) -> Verdict:
        if stack.trl == "0.12.1" and stack.transformers == "4.44.2":
            return verdict(Outcome.UNRESOLVABLE, "trl 0.12.1 requires transformers>=4.46.0")
        return plain(stack, number)  # type: ignore[operator, no-any-return]

    pair.judge = judge
    found = isolate(pair)
    assert found.causes == ("trl", "transformers")
    assert "breaks if trl ≥ 0.12.0 and transformers 4.44.2 → 4.46.3." in sentence(found)
    assert found.unproven[0] == "without transformers the others could not be judged (unresolvable)"
    assert found.unproven[1].startswith("the edge of transformers: --good transformers 4.44.2 is")


@pytest.mark.parametrize(
    ("good", "bad", "said"),
    [
        ("works", "works", "works and works do not differ"),
        ("works", "tree", "--bad-stack tree: it takes a package from a git commit"),
        ("wroks", "breaks", "unknown stack 'wroks'; did you mean 'works'?"),
        ("breaks", "works", "--good-stack breaks: reproduced (text), it is not pass"),
    ],
)
def test_bad_input_is_said_in_a_sentence(pair: Bench, good: str, bad: str, said: str) -> None:
    pair.judge = fails_if(trl="0.12.0")  # type: ignore[assignment]
    with pytest.raises(BadInput) as seen:
        isolate(pair, good, bad)
    assert said in str(seen.value)


def test_what_lies_below_the_packages_is_told_apart(pair: Bench) -> None:
    def judge(stack: Stack, _: int) -> Verdict:
        return verdict(Outcome.REPRODUCED if stack.as_of.isoformat() >= "2024-12" else Outcome.PASS)

    pair.judge = judge
    with pytest.raises(BadInput, match="what changes is below the packages under test"):
        isolate(pair)
