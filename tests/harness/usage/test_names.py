"""What does not exist is refused: a slip of the pen would match no record and clear them all."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from tests.harness.doctor_runs import JSON, NEW, OLD, doctor, ids
from trl_compat.conditions import Value
from trl_compat.errors import BadInput
from trl_compat.matching.applies import matches
from trl_compat.shipped import names, records
from trl_compat.stacks.sources.source import Source
from trl_compat.usage import vocabulary
from trl_compat.usage.conditions import UsageBuilder


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--trainer", "GPRO"), "no TRL release has a trainer 'GPRO'; did you mean 'GRPO'"),
        (("--trainer", "GRPO,SFTT"), "no TRL release has a trainer 'SFTT'; did you mean 'SFT'"),
        (("--trainer", "Trainer"), "available: A2PO, AlignProp"),
        (("--trainer", ","), "names no trainer"),
        (("--set", "trainer=GROP"), "did you mean 'GRPO'"),
        (("--set", "zero_stage=7"), "zero_stage must be 0, 1, 2 or 3, not '7'"),
        (
            ("--set", "use-vllm=true"),
            "unknown condition or option 'use-vllm'; did you mean 'use_vllm'?",
        ),
        (("--set", "use_vllm=yes"), "use_vllm must be true or false, not 'yes'"),
        (("--set", "peft=maybe"), "peft must be true or false, not 'maybe'"),
        (("--set", "strategy=zer3"), "unknown strategy 'zer3'; did you mean 'zero3'"),
        (("--strategy", "zero4"), "unknown strategy 'zero4'; did you mean 'zero3'"),
        (
            ("--set", "learning_rat=1"),
            "unknown condition or option 'learning_rat'; did you mean 'learning_rate'",
        ),
        (
            ("--set", "qqqq=1"),
            "unknown condition or option 'qqqq'; records depend on device, ds3_gather",
        ),
        (("--set", "facet=device"), "unknown condition or option 'facet'"),
        (("--set", "device=gpu"), "device must be cuda or cpu, not 'gpu'"),
        (("--device", "gpu"), "is not one of 'cuda', 'cpu'"),
        (("--world-size", "0"), "--world-size"),
        (("--set", "world_size=two"), "world_size must be a number of at least 1"),
        (("--set", "zero_stage=" + "3" * 5000), "a value of 5000 characters"),
    ],
)
def test_what_does_not_exist_is_refused_with_the_nearest(
    tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    done = doctor(tmp_path, "requirements.txt", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("--trainer", "PPO,GRPO"),
        ("--trainer", "grpo ppo"),
        ("--trainer", "PPOTrainer", "--trainer", "GRPOTrainer"),
        ("--set", "trainer=GRPO, PPOv2Trainer"),
    ],
)
def test_several_trainers_are_all_used(tmp_path: Path, words: tuple[str, ...]) -> None:
    done = doctor(tmp_path, *JSON, *words, "--strategy", "zero3")
    assert "ppo-zero3-save" in ids(done, "applies")
    (report,) = json.loads(done.stdout)["reports"]
    assert set(report["conditions"]["trainer"]) == {"PPO", "GRPO"}
    (found,) = (d for d in report["diagnoses"] if d["id"] == "ppo-zero3-save")
    assert (found["when"], found["uses"]) == ([], ["the PPO trainer"])


def test_a_blank_in_a_trainers_name_is_part_of_it() -> None:
    for text in ("Online DPO SFT", "sft online-dpo", "OnlineDPOTrainer,SFTTrainer"):
        conditions = UsageBuilder()
        conditions.say("trainer", (text,), "a test")
        assert set(conditions.values["trainer"]) == {"Online DPO", "SFT"}


def test_which_of_several_things_go_together_is_not_guessed(tmp_path: Path) -> None:
    done = doctor(tmp_path, *JSON, "--trainer", "PPO,SFT", "--strategy", "zero2,zero3")
    (report,) = json.loads(done.stdout)["reports"]
    (found,) = (d for d in report["diagnoses"] if d["id"] == "ppo-zero3-save")
    assert found["status"] == "applies-if"
    assert found["when"] == ["you use the PPO trainer with ZeRO-3"]


def test_what_is_chosen_of_one_thing_is_certain_and_of_two_is_open() -> None:
    versions = {"trl": "0.12.2", "transformers": "4.46.3", "deepspeed": "0.15.2"}
    source = Source("x", "x", versions={**versions, "accelerate": "0.34.2"})
    record = records.shipped_record("ppo-zero3-save")
    one: dict[str, tuple[Value, ...]] = {"trainer": ("PPO", "SFT"), "zero_stage": (3,)}
    (match,) = matches(record, source, one)
    assert (match.chosen, "trainer" in match.unnamed) == ({"trainer": ["PPO"]}, False)
    (match,) = matches(record, source, {**one, "zero_stage": (2, 3)})
    assert match.chosen == {}
    assert {n: match.unnamed[n] for n in one} == {"trainer": ["PPO"], "zero_stage": [3]}


def test_a_trainer_behind_a_blank_is_no_file(tmp_path: Path) -> None:
    done = doctor(tmp_path, "requirements.txt", "--trainer", "GRPO", "SFT")
    assert done.returncode == 2
    assert "SFT: no such file; to name several trainers" in done.stderr


def test_an_option_that_no_record_depends_on_changes_nothing_and_that_is_said(
    tmp_path: Path,
) -> None:
    done = doctor(tmp_path, "requirements.txt", "--set", "learning_rate=1e-6")
    assert "note: --set learning_rate=1e-6: no record depends on learning_rate" in done.stdout
    without = doctor(tmp_path, "requirements.txt")
    assert done.stdout.splitlines()[-5:] == without.stdout.splitlines()[-5:]


OWN = (
    "{id: mine, title: t, summary: s, severity: slow, cause: c, references: [], masks: true,"
    " symptoms: {x: {exception: E, message: m, where: w}}, affected: ["
    '{symptom: x, versions: {trl: "==1.16.0"}, conditions: {trainer: Mine, mode: [fast, odd]}}]}'
)


def test_records_of_ones_own_widen_what_can_be_named(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "mine.yaml").write_text(OWN)
    own = ("--advisories", "own", "--strategy", "ddp")
    done = doctor(tmp_path, *JSON, *own, "--trainer", "Mine", "--set", "mode=odd", text=NEW)
    assert ids(done, "applies") == {"mine"}
    # A word that no record has may be a slip of the pen: it rules nothing out.
    done = doctor(tmp_path, *JSON, *own, "--trainer", "Mine", "--set", "mode=fsat", text=NEW)
    assert ids(done, "applies-if") == {"mine"}
    assert "no record has this value; mode is treated as unspecified" in done.stdout
    assert doctor(tmp_path, *JSON, "--trainer", "Mine", text=NEW).returncode == 2


def test_every_trainer_and_condition_of_the_records_can_be_named() -> None:
    words = vocabulary.shipped()
    for record in records.shipped().values():
        for block in record.blocks:
            for name, values in block.conditions.items():
                for value in values:
                    said = "null" if value is None else str(value)
                    assert words.read(name, said, "a test") == (value,)


def test_every_trainer_that_a_release_ever_had_is_known() -> None:
    known = names.known()
    assert known.trainers["GRPO"].since == "0.14.0"
    assert known.trainers["PPO"].until == "1.12.0"
    assert known.trainers["GFPO"].extends == ("GRPO",)
    assert {"use_vllm", "beta", "gradient_accumulation_steps"} <= known.options
    words = vocabulary.shipped()
    for name in known.trainers:
        assert words.trainer(f"{name}Trainer") == words.trainer(name)
    with pytest.raises(BadInput, match="no TRL release has"):
        words.read("trainer", "Base", "a test")


def test_the_list_is_made_from_wheels(tmp_path: Path) -> None:
    for version, base in (("0.1.0", "Trainer"), ("0.2.0", "ATrainer")):
        with zipfile.ZipFile(tmp_path / f"trl-{version}-py3-none-any.whl", "w") as wheel:
            source = f"class ATrainer(Trainer): pass\nclass BTrainer({base}): pass\n"
            wheel.writestr("trl/trainer/a.py", source + "class AConfig:\n  beta: float = 0.1\n")
            wheel.writestr("other/b.py", "class CTrainer: pass\n")
    with zipfile.ZipFile(tmp_path / "transformers-4.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("transformers/training_args.py", "class TrainingArguments:\n  seed: int\n")
    made = names.of_wheels(tmp_path.glob("*.whl"))
    assert made.newest == "0.2.0"
    assert made.trainers == {
        "A": names.Trainer("0.1.0", "0.2.0", ()),
        "B": names.Trainer("0.1.0", "0.2.0", ("A",)),
    }
    assert made.options == {"beta", "seed"}
    assert json.loads(names.written(made))["options"] == ["beta", "seed"]


def test_a_trainer_that_extends_a_known_one_may_have_its_failures(tmp_path: Path) -> None:
    text = OLD.replace("0.12.2", "0.28.0").replace("4.46.3", "5.3.0").replace("0.34.2", "1.12.0")
    words = ("--trainer", "MiniLLM", "--strategy", "ddp")
    done = doctor(tmp_path, *JSON, *words, text=text.replace("2.4.1", "2.8.0"))
    assert "trl-optional-deps-truthy-tf53" in ids(done, "applies-if")
    assert "MiniLLM inherited it from GRPO" in done.stdout


def test_a_script_is_never_refused_for_what_it_states(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "args = GRPOConfig(use_vllm='perhaps', zero_stage=9, my_own=1, optim='x')\n"
        "GRPOTrainer(model, args=args)\n"
    )
    done = doctor(tmp_path, *JSON, "--script", "train.py", "--zero-stage", "3")
    (report,) = json.loads(done.stdout)["reports"]
    assert "use_vllm" not in report["conditions"]
    assert report["conditions"]["trainer"] == ["GRPO"]
