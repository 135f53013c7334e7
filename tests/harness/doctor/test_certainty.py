"""Doctor is as sure as what it was given allows, and never surer: no false all-clear."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.harness.doctor_runs import (
    JSON,
    NEW,
    OLD,
    REST_OF_A_FREEZE,
    doctor,
    ids,
    own_record,
    said_of_own,
)
from trl_compat.doctor import assumptions
from trl_compat.doctor.diagnosis import Status, status_of
from trl_compat.matching import applies
from trl_compat.packages import PACKAGES
from trl_compat.ranges import inside, ranges
from trl_compat.shipped import records, releases
from trl_compat.stacks.sources.source import Source
from trl_compat.usage import vocabulary
from trl_compat.usage.conditions import Named, UsageBuilder

WITHOUT = OLD.replace("deepspeed==0.15.2\n", "") + REST_OF_A_FREEZE


LOW, HIGH = 'versions: {transformers: "<5"}', 'versions: {transformers: ">=5"}'


@pytest.mark.parametrize(
    ("blocks", "have", "words", "status", "when"),
    [
        # Two ranges that leave nothing out.
        ((LOW, HIGH), "transformers", (), "applies", []),
        ((LOW, HIGH), "transformers>=4.40", (), "applies", []),
        ((LOW,), "transformers", (), "cannot-tell", ["transformers is in the range <5"]),
        ((LOW,), "transformers<5", (), "applies", []),
        ((LOW,), "", (), "cannot-tell", ["transformers is in the range <5"]),
        ((LOW, HIGH), "", (), "applies", []),  # TRL brings one, whichever it is
        # The same under conditions: what they share has to hold.
        (
            (LOW + ", conditions: {zero_stage: 3}", HIGH + ", conditions: {strategy: deepspeed}"),
            "transformers",
            (),
            "applies-if",
            ["you use ZeRO-3"],
        ),
        (
            (LOW + ", conditions: {zero_stage: 3}", HIGH + ", conditions: {strategy: deepspeed}"),
            "transformers",
            ("--strategy", "zero3"),
            "applies",
            [],
        ),
        (
            (LOW + ", conditions: {zero_stage: 3}", HIGH + ", conditions: {zero_stage: 2}"),
            "transformers",
            (),
            "cannot-tell",
            None,
        ),
        # A clause that no condition names stays open.
        ((LOW + ", also_requires: it rains", HIGH), "transformers", (), "applies-if", ["it rains"]),
        # Every value that a condition can have.
        (("conditions: {peft: true}", "conditions: {peft: false}"), "", (), "applies", []),
        (("conditions: {zero_stage: [0, 1]}", "conditions: {zero_stage: [2, 3]}"), "",
         ("--strategy", "deepspeed"), "applies", []),
        (("conditions: {zero_stage: [1, 2, 3]}",), "", ("--strategy", "deepspeed"), "applies-if",
         ["you use ZeRO-1, ZeRO-2 or ZeRO-3"]),
        (("conditions: {strategy: [deepspeed, fsdp]}", "conditions: {strategy: [ddp, none]}"), "",
         (), "applies", []),
        (("conditions: {use_vllm: true}", "conditions: {use_vllm: false}"), "", (), "applies", []),
        (("conditions: {trainer: GRPO}", "conditions: {trainer: SFT}"), "", (), "applies-if", None),
        (("conditions: {trainer: GRPO}", "conditions: {trainer: SFT}"), "",
         ("--trainer", "GRPO,SFT"), "applies", []),
        # Three unknown packages at once.
        (
            (
                'versions: {transformers: "<5", torch: "<2.5"}',
                'versions: {transformers: ">=5", torch: "<2.5"}',
                'versions: {torch: ">=2.5"}',
            ),
            "transformers\ntorch",
            (),
            "applies",
            [],
        ),
        # A package that may not be there at all decides nothing.
        (('versions: {deepspeed: "<0.15"}', 'versions: {deepspeed: ">=0.15"}'), "", (),
         "cannot-tell", None),
        (('versions: {deepspeed: "<0.15"}', 'versions: {deepspeed: ">=0.15"}'), "",
         ("--zero-stage", "3"), "applies", []),
        (('versions: {deepspeed: "<0.15"}', 'versions: {deepspeed: ">=0.15"}'), "deepspeed", (),
         "applies", []),
    ],
)  # fmt: skip
def test_blocks_that_together_leave_nothing_out_apply(
    tmp_path: Path,
    blocks: tuple[str, ...],
    have: str,
    words: tuple[str, ...],
    status: str,
    when: list[str] | None,
) -> None:
    found = said_of_own(tmp_path, own_record(*blocks), f"trl==1.16.0\n{have}\n", *words)
    assert found is not None
    assert found["status"] == status
    assert when is None or found["when"] == when


@pytest.mark.parametrize(
    "words",
    [
        ("--zero-stage", "3"),
        ("--strategy", "deepspeed"),
        ("--strategy", "zero3"),
        ("--set", "strategy=deepspeed"),
        ("--ds-config", "ds.json"),
        ("--config", "a.yaml"),
        ("--script", "train.py"),
    ],
)
def test_what_is_said_to_be_used_is_used_though_the_lock_has_it_not(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    (tmp_path / "ds.json").write_text('{"zero_optimization": {"stage": 3}}')
    (tmp_path / "a.yaml").write_text("distributed_type: DEEPSPEED\n")
    (tmp_path / "train.py").write_text("PPOTrainer(m, args=PPOConfig(deepspeed='ds.json'))")
    done = doctor(tmp_path, *JSON, "--trainer", "PPO", *words, text=WITHOUT)
    assert done.returncode == 1
    assert "ppo-zero3-save" in ids(done)  # whatever its version
    assert "ds-elastic-agent-import-torch24" in ids(done, "cannot-tell")
    said = "DeepSpeed is used, but requirements.txt does not list deepspeed: its version is unknown"
    assert said in done.stdout
    # Who says nothing is told what was left out.
    silent = doctor(tmp_path, "requirements.txt", "--trainer", "PPO", text=WITHOUT)
    assert silent.returncode == 0
    assert "more known failures can apply: --strategy deepspeed" in silent.stdout


def test_peft_is_used_where_it_is_said_to_be(tmp_path: Path) -> None:
    text = OLD.replace("peft==0.13.2\n", "") + REST_OF_A_FREEZE
    words = ("--trainer", "Online DPO", "--zero-stage", "2")
    assert "online-dpo-ref-none" not in ids(doctor(tmp_path, *JSON, *words, text=text))
    done = doctor(tmp_path, *JSON, *words, "--peft", text=text)
    assert "online-dpo-ref-none" in ids(done, "applies-if")
    assert "requirements.txt does not list peft" in done.stdout


def test_what_trl_requires_is_never_absent(tmp_path: Path) -> None:
    # torch comes with the image: the lock's own project left it out.
    lock = "".join(
        f'[[package]]\nname = "{name}"\nversion = "{version}"\n'
        for name, version in (("trl", "1.12.0"), ("transformers", "4.57.6"))
    )
    (tmp_path / "uv.lock").write_text(f"version = 1\n{lock}")
    done = doctor(tmp_path, "uv.lock", "--format", "json", "--strategy", "ddp")
    assert "trl-fsdpmodule-torch25" in ids(done, "cannot-tell")


def test_a_build_from_between_two_releases_may_be_like_either(tmp_path: Path) -> None:
    text = NEW.replace("trl==1.16.0", "trl==1.12.0")
    text = text.replace("torch==2.15.0", "torch==2.6.0a0+ecf3bae40a.nv25.1")
    done = doctor(tmp_path, *JSON, "--strategy", "ddp", text=text)
    assert "trl-fsdpmodule-torch25" in ids(done, "cannot-tell")
    assert "is a build between two releases" in done.stdout
    both = own_record('versions: {torch: "<2.6"}', 'versions: {torch: ">=2.6"}')
    found = said_of_own(tmp_path, both, text)
    assert found is not None
    assert found["status"] == "applies"


def test_cpu_ranks_are_ruled_out_by_accelerates_file(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(
        "distributed_type: DEEPSPEED\nuse_cpu: false\ndeepspeed_config: {zero_stage: 3}\n"
    )
    done = doctor(tmp_path, *JSON, "--config", "a.yaml")
    assert "zero3-gloo-unwaited-allgather" not in ids(done)
    (tmp_path / "a.yaml").write_text((tmp_path / "a.yaml").read_text().replace("false", "true"))
    done = doctor(tmp_path, *JSON, "--config", "a.yaml")
    assert "zero3-gloo-unwaited-allgather" in ids(done, "applies")


def test_one_refusal_hides_no_other_answer(tmp_path: Path) -> None:
    (tmp_path / "bad.txt").write_text("trl==0.12.7\n")
    (tmp_path / "worse.txt").write_text("torch==2.4.1\n")
    files = ("bad.txt", "requirements.txt", "worse.txt")
    done = doctor(tmp_path, *files, "--trainer", "PPO", "--zero-stage", "3")
    assert done.returncode == 2
    assert "applies: ppo-zero3-save" in done.stdout
    first, second = done.stderr.splitlines()
    assert first.startswith("trl-compat: bad.txt: trl 0.12.7 does not exist")
    assert second.startswith("trl-compat: worse.txt: no TRL in it")
    data = json.loads(doctor(tmp_path, *files, "--format", "json").stdout)
    assert [report["source"]["name"] for report in data["reports"]] == ["requirements.txt"]
    assert [sentence.partition(":")[0] for sentence in data["refused"]] == ["bad.txt", "worse.txt"]
    (run,) = json.loads(doctor(tmp_path, *files, "--format", "sarif").stdout)["runs"]
    (ended,) = run["invocations"]
    said = [note["message"]["text"] for note in ended["toolExecutionNotifications"]]
    assert any("trl 0.12.7 does not exist" in text for text in said)


N = r"\d+"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), f"0 of {N} known failures apply, {N} more depend on unspecified conditions"),
        (
            ("--trainer", "PPO", "--zero-stage", "3", "--device", "cuda"),
            f"1 of {N} known failures that can concern the PPO trainer with ZeRO-3 "
            f"and GPUs applies, {N} more depend on unspecified conditions",
        ),
        (
            ("--trainer", "XPO", "--strategy", "ddp"),
            f"0 of {N} known failures that can concern the XPO trainer with DDP apply",
        ),
        (
            ("--trainer", "ORPO", "--strategy", "fsdp2"),
            "no cell was ever run for the ORPO trainer with FSDP2: this report says nothing about "
            rf"it \(0 of {N} known failures that can concern it apply\)",
        ),
        (
            ("--trainer", "GRPO", "--strategy", "ddp"),
            r"TRL 0\.12\.2 has no GRPO trainer \(others do, from 0\.14\.0 on\): this report "
            rf"says nothing about it \(0 of {N} known failures that can concern it apply\)",
        ),
        (
            ("--trainer", "GRPO", "--strategy", "zero3"),
            f"0 of {N} .* apply, {N} more depend on unspecified conditions; TRL 0.12.2 has no .*",
        ),
    ],
)
def test_the_headline_says_how_much_is_known_of_what_was_asked(
    tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    done = doctor(tmp_path, "requirements.txt", *words)
    assert re.search(f"^{said}$", done.stdout, re.M), done.stdout


@pytest.mark.parametrize("form", ["text", "markdown", "json", "github", "sarif"])
def test_no_format_sounds_like_an_all_clear_where_nothing_was_looked_at(
    tmp_path: Path, form: str
) -> None:
    words = ("--trainer", "ORPO", "--strategy", "fsdp2", "--format", form)
    done = doctor(tmp_path, "requirements.txt", *words)
    assert done.returncode == 0
    assert "no cell was ever run for the ORPO trainer with FSDP2" in done.stdout
    if form == "json":
        (report,) = json.loads(done.stdout)["reports"]
        assert report["never_run"] == ["the ORPO trainer with FSDP2"]
        assert report["known_failures"] > 0


def test_a_part_of_the_question_without_an_answer_is_named(tmp_path: Path) -> None:
    words = ("--trainer", "GRPO,ORPO", "--strategy", "fsdp1")
    text = OLD.replace("0.12.2", "0.16.0").replace("4.46.3", "4.49.0").replace("0.34.2", "1.4.0")
    done = doctor(tmp_path, "requirements.txt", *words, text=text)
    assert "note: no cell was ever run for the ORPO trainer with FSDP1" in done.stdout
    assert "grpo-fsdp-ref-device" in done.stdout


EDGES = {
    package: sorted(
        {
            spec.version
            for record in records.shipped().values()
            for block in record.blocks
            for name, range_ in block.where.versions.items()
            if name == package
            for spec in ranges(range_)
        }
    )
    for package in PACKAGES
}


def questions() -> st.SearchStrategy[Named]:
    def named(trainer: str, strategy: str, device: str) -> Named:
        conditions = UsageBuilder()
        for name, text in (("trainer", trainer), ("strategy", strategy), ("device", device)):
            if text:
                conditions.say(name, (text,), "a test")
        return conditions.values

    return st.builds(
        named,
        st.sampled_from(["", "GRPO", "PPO", "Online DPO", "SFT", "GRPO,PPO"]),
        st.sampled_from(["", "zero3", "zero2", "deepspeed", "fsdp2", "ddp"]),
        st.sampled_from(["", "cuda", "cpu"]),
    )


@st.composite
def sources_(draw: st.DrawFn) -> Source:
    """Releases at the edges of what is known, one or two packages in a range that has some."""
    open_ = draw(st.sets(st.sampled_from(PACKAGES), min_size=1, max_size=2))
    versions, unpinned = {}, {}
    for package in PACKAGES:
        edge = draw(st.sampled_from(EDGES[package]))
        there = [
            str(v) for v in applies.possible(package, draw(st.sampled_from(["", f">={edge}"])))
        ]
        if package not in open_:
            versions[package] = there[0] if there else str(releases.known().newest(package))
            continue
        range_ = draw(st.sampled_from(["", f">={edge}", f"<{edge}", f"!={edge}"]))
        unpinned[package] = range_ if applies.possible(package, range_) else ""
    return Source("a test", "requirements", versions=versions, unpinned=unpinned)


def worlds(source: Source) -> list[dict[str, str]]:
    """A release for each kind that no range of any record tells apart, for every open package."""
    choices = []
    for package, range_ in source.unpinned.items():
        kinds = {}
        for version in applies.possible(package, range_):
            near = (inside(version, f"<{e}") for e in EDGES[package])
            last = (inside(version, f"<={e}") for e in EDGES[package])
            kinds[(*near, *last)] = str(version)
        choices.append([(package, version) for version in kinds.values()])
    return [dict(chosen) for chosen in itertools.product(*choices)]


def statuses(source: Source, named: Named) -> Mapping[str, Status]:
    have, _ = assumptions.of(source, named)
    found = {}
    for record in records.shipped().values():
        if mine := applies.matches(record, have, named):
            found[record.id], _ = status_of(record, mine, have, named, vocabulary.shipped())
    return found


@settings(max_examples=60)
@given(source=sources_(), named=questions())
def test_what_is_open_is_answered_as_every_release_that_it_may_be(
    source: Source, named: Named
) -> None:
    said = statuses(source, named)
    every: dict[str, list[Status]] = {}
    possible = worlds(source)[:60]
    for world in possible:
        versions = {**source.versions, **world}
        for failure, status in statuses(Source("one", "x", versions=versions), named).items():
            every.setdefault(failure, []).append(status)
    assert set(every) <= set(said)  # nothing that some release has is passed over
    for failure, status in said.items():
        found = every.get(failure, [])
        if status is Status.APPLIES:
            assert len(found) == len(possible), failure
        if len(found) == len(possible) and set(found) == {Status.APPLIES}:
            assert status is Status.APPLIES or len(worlds(source)) > 60, failure
