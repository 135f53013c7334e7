"""A bisection over releases: its candidates, stacks, edge, proof and the advisory's line."""

from __future__ import annotations

import json
import threading

import pytest

from tests.harness.bisect.bench import Bench, by_version, verdict
from trl_compat.bisect import ahead, answer
from trl_compat.bisect.around import Around
from trl_compat.cells.outcome import Outcome
from trl_compat.cells.verdict import Verdict
from trl_compat.errors import BadInput, HarnessError
from trl_compat.stacks.environments import build
from trl_compat.stacks.matrix import Stack

FAILS = ("0.11.0", "0.11.1", "0.11.2", "0.11.3", "0.11.4", "0.12.0", "0.12.1", "0.12.2")


def steps(found: answer.Answer, bench: Bench) -> list[dict[str, object]]:
    text = (bench.where.root / found.log).read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def test_the_first_release_that_fails(bisection: Bench) -> None:
    bisection.judge = by_version("trl", *FAILS)
    found = bisection.bisect("trl", "0.9.2", "0.12.2")
    assert (found.good.version, found.bad.version) == ("0.10.1", "0.11.0")
    assert (found.good.date, found.bad.date) == ("2024-08-29", "2024-09-19")
    assert found.sentence == (
        "saving (zero3, tiny-qwen2, 2 ranks): with trl 0.10.1 (2024-08-29) passes, with trl 0.11.0 "
        "(2024-09-19) fails (text)."
    )
    assert (found.candidates, found.between, found.exit_code) == (13, (), 0)
    assert found.tried < 8


def test_the_last_release_that_fails_and_the_line_to_change(bisection: Bench) -> None:
    bisection.judge = by_version("trl", *FAILS)
    found = bisection.bisect("trl", "0.16.1", "0.12.0")
    assert (found.bad.version, found.good.version) == ("0.12.2", "0.13.0")
    assert found.exit_code == 1
    assert found.advice is not None
    lines = (bisection.where.advisories / "saving.yaml").read_text().splitlines()
    number = next(n for n, line in enumerate(lines, 1) if ">=0.11" in line)
    assert found.advice.proposed == (
        f'advisories/saving.yaml:{number}: trl: ">=0.11,<=1.12.0" → ">=0.11,<=0.12.2"',
    )
    assert "trl 0.13.0 is expected to be reproduced (text) and is pass" in found.advice.lines


def test_both_sides_of_the_edge_run_twice(bisection: Bench) -> None:
    bisection.judge = by_version("trl", *FAILS)
    found = bisection.bisect("trl", "0.9.2", "0.12.2")
    assert (found.good.runs, found.bad.runs) == (2, 2)


def test_what_cannot_be_judged_is_skipped_and_named(bisection: Bench) -> None:
    gone = verdict(Outcome.UNRESOLVABLE, "no such datasets")
    masked = Verdict(outcome=Outcome.MASKED, masked_by="early-stop", symptom="init")
    bisection.judge = by_version("trl", *FAILS, **{"0.11.0": gone, "0.9.6": masked})
    found = bisection.bisect("trl", "0.9.2", "0.12.2")
    assert (found.good.version, found.bad.version) == ("0.10.1", "0.11.1")
    assert [place.version for place in found.between] == ["0.11.0"]
    assert "not judged between them: 0.11.0" in found.sentence
    text = answer.text(found)
    assert "trl 0.11.0 (2024-09-19): is unresolvable (no such datasets)" in text
    assert [place.shows for place in found.skipped] in ([], ["is masked by early-stop"])


def test_runs_that_differ_are_run_a_third_time_and_called_unstable(bisection: Bench) -> None:
    plain = by_version("trl", *FAILS)

    def judge(stack: Stack, number: int) -> Verdict:
        if stack.trl == "0.11.0" and number == 1:
            return verdict(Outcome.PASS)
        return plain(stack, number)

    bisection.judge = judge
    found = bisection.bisect("trl", "0.9.2", "0.12.2")
    assert (found.bad.version, found.bad.runs, found.bad.unstable) == ("0.11.0", 3, True)
    assert "3 runs differ: unstable" in answer.text(found)


@pytest.mark.parametrize(
    ("good", "bad", "said"),
    [
        (
            "0.12.2",
            "0.9.6",
            "--good trl 0.12.2 fails (text), it is not pass; trl 0.9.6 passes: the ends are the "
            "wrong way round",
        ),
        ("0.9.6", "0.10.1", "--bad trl 0.10.1 passes, it is not reproduced; trl 0.9.6 passes: not"),
        ("0.9.6", "0.14.0", "--bad trl 0.14.0 is hang (stuck), it is not reproduced; run it again"),
        ("0.9.6", "0.9.6", "--good and --bad are both trl 0.9.6"),
        ("0.9.5", "0.12.2", "--good 0.9.5: trl 0.9.5 does not exist"),
        ("0.9.6", "0.12.x", "--bad 0.12.x: not a version; did you mean 0.12.2?"),
        ("1.0.0rc1", "0.12.2", "nearest final releases: 0.29.1 and 1.0.0"),
        ("99", "0.12.2", "the newest release in the list (as of"),
        ("2.15.0+cpu", "0.12.2", "name the release without '+cpu'"),
    ],
)
def test_wrong_ends_are_said_in_a_sentence(
    bisection: Bench, good: str, bad: str, said: str
) -> None:
    bisection.judge = by_version("trl", *FAILS, **{"0.14.0": verdict(Outcome.HANG, "stuck")})
    with pytest.raises(BadInput) as seen:
        bisection.bisect("trl", good, bad)
    assert said in str(seen.value)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"failure": "savin"}, "unknown failure 'savin'; did you mean 'saving'?"),
        ({"failure": "early-stop"}, "--outcome masked:early-stop"),
        ({"stack": "tree"}, "--stack tree: it takes a package from a git commit"),
        ({"stack": "nwe"}, "unknown stack 'nwe'"),
        ({"variant": "zero4"}, "unknown variant 'zero4'"),
        ({"model": "huge"}, "unknown model 'huge'"),
        ({"holds": ("trl==0.9.6",)}, "trl is what is moved"),
        ({"holds": ("peft",)}, "write PACKAGE==VERSION"),
        ({"holds": ("peft==0.12.0", "peft==0.13.2")}, "already held at 0.12.0"),
        ({"holds": ("numpy==1.26.4",)}, "unknown package 'numpy'"),
        ({"holds": ("transformers==4.46.0",)}, "was yanked"),
        ({"bad_outcome": "passes"}, "unknown outcome 'passes'; did you mean 'pass'?"),
        ({"bad_outcome": "pass"}, "nothing tells them apart"),
        ({"bad_outcome": "unresolvable"}, "says nothing about a release"),
        ({"bad_outcome": "hang:x"}, "can be followed by a name"),
        ({"bad_outcome": "reproduced:txt"}, "unknown symptom 'txt'; did you mean 'text'?"),
        ({"bad_outcome": "masked:early"}, "unknown failure 'early'"),
        ({"fix": "wright"}, "unknown fix 'wright'; did you mean 'right'?"),
    ],
)
def test_bad_input_is_said_before_anything_runs(
    bisection: Bench, more: dict[str, object], said: str
) -> None:
    with pytest.raises(BadInput) as seen:
        bisection.bisect("trl", "0.9.6", "0.12.2", **more)
    assert said in str(seen.value)
    assert bisection.ran == []


def test_a_yanked_release_is_no_end(bisection: Bench) -> None:
    with pytest.raises(BadInput, match=r"yanked.*nearest final releases: 4.45.2 and 4.46.1"):
        bisection.bisect("transformers", "4.46.0", "4.40.2")


def test_a_source_that_stops_answering_ends_it_and_keeps_what_was_seen(bisection: Bench) -> None:
    away = verdict(Outcome.UNAVAILABLE, "connection refused")
    first = by_version("trl", *FAILS)
    ends = ("0.9.2", "0.12.2")
    bisection.judge = lambda stack, n: first(stack, n) if stack.trl in ends else away
    with pytest.raises(BadInput) as seen:
        bisection.bisect("trl", *ends)
    assert "a source cannot be reached (connection refused); 2 judged candidates are kept" in str(
        seen.value
    )
    tried = [line for line in bisection.said if "unavailable" in line]
    assert len({line.partition(":")[0] for line in tried}) == 2


def test_one_release_out_of_reach_is_skipped(bisection: Bench) -> None:
    away = verdict(Outcome.UNAVAILABLE, "no such file")
    bisection.judge = by_version("trl", *FAILS, **{"0.11.0": away})
    assert bisection.bisect("trl", "0.9.2", "0.12.2").between[0].outcome == "unavailable"


def test_a_harness_error_that_stays_is_one(bisection: Bench) -> None:
    broken = verdict(Outcome.HARNESS_ERROR, "damaged")
    bisection.judge = by_version("trl", *FAILS, **{"0.9.2": broken})
    with pytest.raises(HarnessError, match="damaged"):
        bisection.bisect("trl", "0.9.2", "0.12.2")


def test_interrupted_it_says_how_to_go_on(bisection: Bench) -> None:
    plain = by_version("trl", *FAILS)

    def judge(stack: Stack, number: int) -> Verdict:
        if stack.trl not in ("0.9.2", "0.12.2"):
            raise KeyboardInterrupt
        return plain(stack, number)

    bisection.judge = judge
    with pytest.raises(KeyboardInterrupt):
        bisection.bisect("trl", "0.9.2", "0.12.2")
    assert bisection.said[-1].startswith("judged so far, and kept: 2 stacks; to go on")


def test_every_step_is_on_disk(bisection: Bench) -> None:
    bisection.judge = by_version("trl", *FAILS)
    found = bisection.bisect("trl", "0.9.2", "0.12.2")
    events = [step["event"] for step in steps(found, bisection)]
    assert (events[0], events[-1]) == ("began", "answer")
    judged = {
        step["version"]: step["side"]
        for step in steps(found, bisection)
        if "side" in step and "version" in step
    }
    assert judged["0.10.1"] == "good"
    assert len(judged) == events.count("step")  # each once, though the edge is asked again
    again = bisection.bisect("trl", "0.9.2", "0.12.2")
    assert again.log == found.log
    assert len(steps(again, bisection)) == 2 * len(events)


def test_the_other_packages_stay_and_the_day_moves_only_as_far_as_it_must(bisection: Bench) -> None:
    seen: dict[str, Stack] = {}
    plain = by_version("trl", *FAILS)

    def judge(stack: Stack, number: int) -> Verdict:
        seen.setdefault(stack.trl, stack)
        return plain(stack, number)

    bisection.judge = judge
    bisection.bisect("trl", "0.13.0", "0.12.2", stack="trl-0.12.2")
    base = seen["0.12.2"]
    assert seen["0.13.0"].model_copy(update={"trl": "0.12.2", "as_of": base.as_of}) == base
    assert [str(stack.as_of) for stack in seen.values()] == ["2024-12-16", "2024-12-12"]


def test_the_edge_is_proven_with_everything_else_alike(bisection: Bench) -> None:
    bisection.judge = by_version("trl", *FAILS)
    found = bisection.bisect("trl", "0.13.0", "0.12.2", stack="trl-0.12.2")
    assert found.also_moved == ()
    assert found.bad.stack != "trl-0.12.2"  # on the day of the other side


def test_what_else_differs_is_named_if_it_may_be_the_cause(bisection: Bench) -> None:
    def judge(stack: Stack, _: int) -> Verdict:
        failing = stack.as_of.isoformat() < "2024-12-16"
        return verdict(Outcome.REPRODUCED if failing else Outcome.PASS)

    bisection.judge = judge
    found = bisection.bisect("trl", "0.13.0", "0.12.2", stack="trl-0.12.2")
    assert found.also_moved == ("datasets 2024-12-16 / 2024-12-12",)
    assert "the edge may be due to what else differs" in found.notes[-1]


def test_what_a_release_requires_moves_with_it_and_is_said(bisection: Bench) -> None:
    bisection.judge = by_version("trl", *FAILS)
    found = bisection.bisect(
        "trl", "0.13.0", "0.12.2", stack="trl-0.13.0", holds=("accelerate==1.3.0",)
    )
    assert found.bad.moved == ()
    newer = bisection.bisect("trl", "0.21.0", "0.12.2", stack="trl-0.13.0")
    assert any(
        "transformers 4.46.3 → 4.55.0 (trl 0.21.0 requires" in line for line in bisection.said
    )
    assert newer.exit_code == 1


def test_a_hold_that_a_release_does_not_allow_is_skipped_with_the_reason(bisection: Bench) -> None:
    bisection.judge = by_version("trl", *FAILS)
    with pytest.raises(BadInput) as seen:
        bisection.bisect("trl", "0.21.0", "0.12.2", holds=("transformers==4.46.3",))
    assert "--good trl 0.21.0 is unresolvable (trl 0.21.0 requires transformers>=4.55.0" in str(
        seen.value
    )


def test_between_two_texts_of_one_failure(bisection: Bench) -> None:
    def judge(stack: Stack, _: int) -> Verdict:
        found = verdict(Outcome.REPRODUCED)
        newer = stack.transformers >= "4.46"
        return found.model_copy(update={"symptom": "empty"}) if newer else found

    bisection.judge = judge
    wanted = {"good_outcome": "reproduced:text", "bad_outcome": "reproduced:empty"}
    found = bisection.bisect("transformers", "4.44.2", "4.46.3", stack="old", **wanted)
    assert (found.good.version, found.bad.version) == ("4.45.2", "4.46.1")


def test_the_next_environments_are_built_while_cells_run(
    bisection: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = threading.Event()
    monkeypatch.setattr(build, "ensure", lambda *_: built.set())
    wanted: list[str] = []

    def judge(stack: Stack, number: int) -> Verdict:
        if stack.trl == "0.11.1":  # the middle of thirteen, whose followers are wanted by now
            assert built.wait(30)
        return by_version("trl", *FAILS)(stack, number)

    want = ahead.Ahead.want

    def told(self: ahead.Ahead, stacks: list[Around]) -> None:
        wanted.append(" ".join(one.stack.trl for one in stacks))
        want(self, stacks)

    monkeypatch.setattr(ahead.Ahead, "want", told)
    bisection.judge = judge
    bisection.bisect("trl", "0.9.2", "0.12.2")
    assert wanted[0] == "0.11.4 0.9.6"


def test_a_build_of_torch_that_is_not_there_is_said_and_never_built_ahead(
    bisection: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ahead, "held_builds", frozenset)
    monkeypatch.setattr(ahead, "free_bytes", lambda: 20 * 10**9)
    bisection.judge = by_version("trl", *FAILS)
    bisection.bisect("trl", "0.9.2", "0.12.2")
    assert any("needs torch 2.4.1, of which no stack here has a build" in s for s in bisection.said)
    assert bisection.built == []


def test_a_disk_without_room_for_torch_is_said_before_the_download(
    bisection: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ahead, "held_builds", frozenset)
    monkeypatch.setattr(ahead, "free_bytes", lambda: 10**9)
    with pytest.raises(BadInput, match=r"needs torch 2.4.1.*the disk has 1.0 GB left"):
        bisection.bisect("trl", "0.9.2", "0.12.2")


def test_the_answer_is_also_json(bisection: Bench) -> None:
    bisection.judge = by_version("trl", *FAILS)
    found = bisection.bisect("trl", "0.9.2", "0.12.2")
    data = json.loads(found.model_dump_json())
    assert data["bad"]["exception"] == "AttributeError"
    assert data["bad"]["command"].startswith("run bisect-trl-0.11.0-")


def test_what_cannot_be_judged_around_one_stack_is_tried_around_another(bisection: Bench) -> None:
    plain = by_version("trl", *FAILS)

    def judge(stack: Stack, number: int) -> Verdict:
        if stack.trl == "0.11.4" and stack.transformers != "4.45.2":
            return verdict(Outcome.OTHER_FAILURE, "too new")
        return plain(stack, number)

    bisection.judge = judge
    found = bisection.bisect(
        "trl", "0.11.4", "0.13.0", good_outcome="reproduced", bad_outcome="pass"
    )
    assert (found.good.version, found.bad.version) == ("0.12.2", "0.13.0")
    assert found.skipped == ()
    assert any("not judged with it: other-failure" in line for line in bisection.said)
    with pytest.raises(BadInput, match=r"trl 0.11.4 is other-failure .too new."):
        bisection.bisect(
            "trl",
            "0.11.4",
            "0.13.0",
            good_outcome="reproduced",
            bad_outcome="pass",
            stack="trl-0.13.0",
        )
