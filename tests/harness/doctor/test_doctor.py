"""Doctor on the command line: what is named narrows, what is not known is said, nothing is run."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from tests.harness.conftest import ROOT
from tests.harness.doctor_runs import (
    FOUND,
    IGNORE,
    JSON,
    NEW,
    OLD,
    REST_OF_A_FREEZE,
    doctor,
    ids,
)
from trl_compat.errors import BadInput
from trl_compat.usage import configs, scripts
from trl_compat.usage.conditions import UsageBuilder


def test_what_is_named_applies_and_the_fix_is_printed(tmp_path: Path) -> None:
    done = doctor(tmp_path, "requirements.txt", "--trainer", "PPO", "--zero-stage", "3")
    assert done.returncode == 1
    assert "applies: ppo-zero3-save (crash late in training)" in done.stdout
    assert "ppo_zero3_save.apply()" in done.stdout
    assert "not a fix: Replacing save_model by policy.save_pretrained()" in done.stdout
    assert "nearest tested stack: trl-0.12.2, run 20" in done.stdout
    assert "(exactly these versions)" in done.stdout


def test_what_is_not_named_is_listed_with_its_condition(tmp_path: Path) -> None:
    done = doctor(tmp_path, "requirements.txt")
    assert done.returncode == 1
    assert "if you use the PPO trainer with ZeRO-3" in done.stdout
    assert not re.search("^[a-z -]+: grpo-fsdp-ref-device", done.stdout, re.M)


GRPO_WITH_DDP = ("--trainer", "GRPO", "--strategy", "ddp")  # nothing is known to fail there


def test_nothing_applies_exits_with_0(tmp_path: Path) -> None:
    done = doctor(tmp_path, "requirements.txt", *GRPO_WITH_DDP, text=NEW)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(
        r"^0 of \d+ known failures that can concern the GRPO trainer with DDP", done.stdout, re.M
    )


def test_a_failure_behind_another_one_comes_next(tmp_path: Path) -> None:
    masked = OLD.replace("accelerate==0.34.2", "accelerate==1.0.1")
    done = doctor(tmp_path, *JSON, "--trainer", "ppo", "--zero-stage", "3", text=masked)
    assert ids(done, "applies") == {"accelerator-init-order-deepspeed"}
    assert ids(done, "hidden") == {"ppo-zero3-save"}


def test_a_version_that_is_not_there_is_not_guessed(tmp_path: Path) -> None:
    partly = "trl==1.12.0\ntransformers>=4.57\n"
    done = doctor(tmp_path, *JSON, "--trainer", "PPO", "--zero-stage", "2", text=partly)
    assert ids(done, "cannot-tell") >= {"ppo-zero3-save"}
    pinned = partly.replace(">=4.57", "==4.57.6")
    done = doctor(tmp_path, *JSON, "--trainer", "PPO", "--zero-stage", "2", text=pinned)
    assert "ppo-zero3-save" not in ids(done, "cannot-tell", *FOUND)


def test_a_range_decides_where_all_of_it_is_on_one_side(tmp_path: Path) -> None:
    ranged = "trl==1.12.0\ntransformers>=5.0\n"
    done = doctor(tmp_path, *JSON, "--trainer", "PPO", "--zero-stage", "2", text=ranged)
    assert "ppo-zero3-save" in ids(done, "applies")


def test_without_deepspeed_its_failures_do_not_apply(tmp_path: Path) -> None:
    freeze = OLD.replace("deepspeed==0.15.2\n", REST_OF_A_FREEZE)
    done = doctor(tmp_path, *JSON, text=freeze)
    of_deepspeed = {"ppo-zero3-save", "online-dpo-ref-none", "ds-offload-drops-microbatches"}
    assert not of_deepspeed & ids(done)
    (note,) = json.loads(done.stdout)["reports"][0]["notes"]
    assert note.startswith("requirements.txt does not list deepspeed; if it is installed as well,")
    nearest = json.loads(done.stdout)["reports"][0]["nearest_run"]
    assert (nearest["stack"], nearest["differs"]) == (
        "trl-0.12.2",
        ["deepspeed not installed → 0.15.2"],
    )


def test_records_of_ones_own_count_and_a_broken_one_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "broken.yaml").write_text("id: broken\n")
    (folder / "my-failure.yaml").write_text(
        "{id: my-failure, title: t, summary: s, severity: slow, cause: c, references: [],"
        " masks: true, symptoms: {x: {exception: E, message: m, where: w}},"
        ' affected: [{symptom: x, versions: {trl: "==1.16.0"}}]}'
    )
    done = doctor(tmp_path, *JSON, "--advisories", "mine", *GRPO_WITH_DDP, text=NEW)
    assert ids(done) == {"my-failure"}
    (note,) = json.loads(done.stdout)["reports"][0]["notes"]
    assert note.startswith("left out: mine/broken.yaml:")


def test_what_a_project_accepts_for_a_while_does_not_count(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(IGNORE.format("2999-12-31"))
    done = doctor(tmp_path, "requirements.txt", "--device", "cuda", text=NEW)
    assert done.stderr == ""
    headline = r"^0 of \d+ known failures that can concern GPUs apply, .*1 ignored$"
    assert re.search(headline, done.stdout, re.M), done.stdout
    assert not re.search("^applies[ a-z]*: unwrap-double-yield", done.stdout, re.M)
    wanted = "ignored: unwrap-double-yield until 2999-12-31: we stop at any exception"
    assert wanted in done.stdout
    (tmp_path / "pyproject.toml").write_text(IGNORE.format("2026-01-01"))
    done = doctor(tmp_path, "requirements.txt", text=NEW)
    assert done.returncode == 1
    assert "note: the ignore of unwrap-double-yield expired on 2026-01-01" in done.stdout
    assert re.search("^applies[ a-z]*: unwrap-double-yield", done.stdout, re.M)


def test_what_cannot_be_told_is_not_green(tmp_path: Path) -> None:
    done = doctor(tmp_path, "requirements.txt", "--zero-stage", "3", text="trl>=0.1\n")
    assert done.returncode == 1
    assert re.search(r"^0 of \d+ .* apply, .*\d+ cannot be determined$", done.stdout, re.M)
    assert "nearest stack" not in done.stdout  # to no version in particular


def test_an_unexamined_commit_is_not_judged_by_ranges(tmp_path: Path) -> None:
    tree = OLD.replace("trl==0.12.2", f"trl @ git+https://github.com/huggingface/trl@{'0' * 40}")
    done = doctor(tmp_path, *JSON, "--trainer", "PPO", "--zero-stage", "3", text=tree)
    assert "zero3-gloo-unwaited-allgather" in ids(done)
    assert "ppo-zero3-save" not in ids(done)
    assert "ppo-zero3-save" in ids(done, "cannot-tell")


@pytest.mark.parametrize(
    ("text", "words", "said"),
    [
        ("torch==2.4.1\n", (), "no TRL in it"),
        ("trl==0.12.7\n", (), "trl 0.12.7 does not exist (as of"),
        ("trl==0.12.2\ntransformers==4.46.0\n", (), "transformers 4.46.0 was yanked"),
        (OLD, ("--zero-stage", "4"), "Invalid value"),
        (OLD, ("--set", "beta"), "write NAME=VALUE"),
        (OLD, ("--strategy", "ddp", "--zero-stage", "3"), "give one value"),
        (OLD, ("--config", "none.yaml"), "none.yaml: no such file"),
        (OLD, ("--python", "none"), "either a file or --python"),
    ],
)
def test_bad_input_is_one_sentence(
    tmp_path: Path, text: str, words: tuple[str, ...], said: str
) -> None:
    done = doctor(tmp_path, "requirements.txt", *words, text=text)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_a_release_newer_than_the_list_is_said_to_be_so(tmp_path: Path) -> None:
    done = doctor(tmp_path, "requirements.txt", text=NEW.replace("5.23.0", "77.0"))
    assert "note: transformers 77.0 is newer than the newest known release" in done.stdout


@pytest.mark.parametrize("text", [OLD, NEW, "trl>=0.1\n", "trl==1.16.0\ntorch==2.6.0\n"])
def test_the_json_is_what_its_published_schema_says(tmp_path: Path, text: str) -> None:
    path = ROOT / "src" / "trl_compat" / "schema" / "doctor-1.json"
    schema = json.loads(path.read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    for words in ((), ("--trainer", "PPO", "--zero-stage", "3"), ("--strategy", "ddp")):
        found = json.loads(doctor(tmp_path, *JSON, *words, text=text).stdout)
        jsonschema.validate(found, schema)


def test_annotations_name_file_and_line(tmp_path: Path) -> None:
    words = ("requirements.txt", "--format", "github", "--trainer", "PPO", "--zero-stage", "3")
    done = doctor(tmp_path, *words, text="torch==2.4.1\n" + OLD.replace("torch==2.4.1\n", ""))
    first = done.stdout.splitlines()[0]
    assert first.startswith("::error file=requirements.txt,line=2,title=PPO under DeepSpeed")
    assert "::ppo-zero3-save: " in first
    assert "%0AFix: " in first


def test_sarif_has_a_rule_and_a_result_for_each(tmp_path: Path) -> None:
    done = doctor(tmp_path, "requirements.txt", "--format", "sarif")
    (run,) = json.loads(done.stdout)["runs"]
    rules = {rule["id"] for rule in run["tool"]["driver"]["rules"]}
    assert {result["ruleId"] for result in run["results"]} == rules
    assert "ppo-zero3-save" in rules
    where = run["results"][0]["locations"][0]["physicalLocation"]
    assert where["artifactLocation"]["uri"] == "requirements.txt"
    assert where["region"]["startLine"] == 1


def test_markdown_is_one_table(tmp_path: Path) -> None:
    done = doctor(tmp_path, "requirements.txt", "--format", "markdown")
    rows = [line for line in done.stdout.splitlines() if line.startswith("|")]
    assert rows[0] == "| failure | severity | applies | what to do |"
    assert all(row.count(" | ") == 3 for row in rows[2:])


def test_several_files_are_looked_at_one_by_one(tmp_path: Path) -> None:
    (tmp_path / "new.txt").write_text(NEW)
    done = doctor(tmp_path, "requirements.txt", "new.txt", "--format", "json")
    names = [report["source"]["name"] for report in json.loads(done.stdout)["reports"]]
    assert names == ["requirements.txt", "new.txt"]


def test_it_does_little_and_imports_nothing_heavy(tmp_path: Path) -> None:
    """Calls are counted, as seconds depend on the machine: a million take about half a second."""
    (tmp_path / "requirements.txt").write_text(OLD)
    code = (
        "import cProfile, pstats, sys; sys.argv = ['trl-compat', 'doctor', 'requirements.txt']\n"
        "profile = cProfile.Profile()\n"
        "profile.enable()\n"
        "from trl_compat.cli import main\n"
        "try: main()\n"
        "finally:\n"
        "    profile.disable()\n"
        "    print(pstats.Stats(profile).total_calls, ' '.join(sys.modules), file=sys.stderr)\n"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 1
    calls, *imported = done.stderr.split()
    assert not {"torch", "pydantic", "rich", "pytest", "jinja2"} & set(imported)
    assert int(calls) < 1_500_000


ACCELERATE = """
compute_environment: LOCAL_MACHINE
distributed_type: {kind}
num_processes: 4
{more}
"""


@pytest.mark.parametrize(
    ("kind", "more", "wanted"),
    [
        ("MULTI_GPU", "", {"strategy": ("ddp",)}),
        ("'NO'", "", {"strategy": ("none",)}),
        ("FSDP", "fsdp_config: {fsdp_version: 2}", {"strategy": ("fsdp",), "fsdp_version": (2,)}),
        ("FSDP", "fsdp_config: {}", {"strategy": ("fsdp",), "fsdp_version": (1,)}),
        ("DEEPSPEED", "deepspeed_config: {zero_stage: 3}", {"zero_stage": (3,)}),
        ("DEEPSPEED", "deepspeed_config: {deepspeed_config_file: ds.json}", {"zero_stage": (2,)}),
        ("MULTI_CPU", "", {"strategy": ("ddp",), "device": ("cpu",)}),
    ],
)
def test_conditions_are_read_from_accelerates_file(
    tmp_path: Path, kind: str, more: str, wanted: dict[str, object]
) -> None:
    (tmp_path / "ds.json").write_text('{"zero_optimization": {"stage": 2}}')
    (tmp_path / "a.yaml").write_text(ACCELERATE.format(kind=kind, more=more))
    conditions = UsageBuilder()
    configs.read_accelerate(tmp_path / "a.yaml", conditions)
    assert {**conditions.values, **wanted} == conditions.values
    assert conditions.values["world_size"] == (4,)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.yaml", "distributed_type: [", "not valid YAML"),
        ("a.yaml", "- 1\n", "not an `accelerate config` file"),
        ("a.yaml", "num_processes: 2\n", "no distributed_type"),
        ("ds.json", "{", "ds.json:1: not valid JSON"),
        ("ds.json", '{"zero_optimization": {"stage": 7}}', "zero_optimization.stage is not 0"),
        ("ds.json", "[]", "not a DeepSpeed configuration"),
        ("train.py", "def (", "train.py:1: not valid Python"),
    ],
)
def test_a_configuration_that_cannot_be_read_is_refused(
    tmp_path: Path, name: str, text: str, said: str
) -> None:
    path = tmp_path / name
    path.write_text(text)
    readers = {"a.yaml": configs.read_accelerate, "ds.json": configs.read_deepspeed}
    with pytest.raises(BadInput, match=said.replace("[", r"\[")):
        readers.get(name, scripts.read)(path, UsageBuilder())


SCRIPT = """
import trl
from peft import LoraConfig
from trl import GRPOConfig, GRPOTrainer

class Mine(GRPOTrainer):
    pass

adapter = LoraConfig(r=8)
args = GRPOConfig(use_vllm=True, beta=0, ds3_gather_for_generation=False, steps=STEPS,
                  deepspeed="ds.json", output_dir="x")
trainer = Mine(model, args=args, peft_config=adapter)
"""


def test_conditions_are_read_from_a_script_without_running_it(tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text('{"zero_optimization": {"stage": 3}}')
    (tmp_path / "train.py").write_text(SCRIPT)
    conditions = UsageBuilder()
    scripts.read(tmp_path / "train.py", conditions)
    wanted = {
        "trainer": ("GRPO",),
        "peft": (True,),
        "use_vllm": (True,),
        "ds3_gather_for_generation": (False,),
        "zero_stage": (3,),
        "strategy": ("deepspeed",),
    }
    assert {**conditions.values, **wanted} == conditions.values
    assert not {"steps", "r"} & set(conditions.values)


def test_what_a_script_computes_stays_open(tmp_path: Path) -> None:
    text = "trainer = SFTTrainer(peft_config=get_peft_config(model_args))\nother = MyTrainer()\n"
    (tmp_path / "train.py").write_text(text)
    conditions = UsageBuilder()
    scripts.read(tmp_path / "train.py", conditions)
    assert conditions.values == {}
    assert "MyTrainer is not a TRL trainer" in conditions.notes[0]


def test_files_that_contradict_each_other_are_refused(tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text('{"zero_optimization": {"stage": 2}}')
    conditions = UsageBuilder()
    conditions.say("zero_stage", (3,), "--zero-stage")
    with pytest.raises(BadInput, match=r"ds\.json says zero_stage = 2, --zero-stage says 3"):
        configs.read_deepspeed(tmp_path / "ds.json", conditions)
