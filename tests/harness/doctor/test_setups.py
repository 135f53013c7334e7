"""Set-ups as real projects have them, of several years and in several formats: each answer by hand.

What is not found here must not be there: each of these was, or nearly was, a false all-clear.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.harness.doctor_runs import CLI, REST_OF_A_FREEZE

COMMIT = "336dc69d63d56f232a183a3e7f52790429b871ef"


def pins(**versions: str) -> str:
    return "".join(f"{name}=={version}\n" for name, version in versions.items())


def uv(*packages: str, root: str) -> str:
    """A uv.lock of a project that depends on ``root``."""
    own = f'[[package]]\nname = "m"\nsource = {{ virtual = "." }}\ndependencies = [{root}]\n'
    return "\n".join(['version = 1\nrequires-python = ">=3.10"', own, *packages])


def package(name: str, version: str, more: str = "") -> str:
    return f'[[package]]\nname = "{name}"\nversion = "{version}"\n{more}'


Answer = tuple[dict[str, str], str]


def ask(folder: Path, files: dict[str, str], *words: str) -> Answer:
    """The status of each failure, and the notes in one text."""
    for name, text in files.items():
        (folder / name).write_text(text)
    command = [str(CLI), "doctor", *words, "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    assert done.returncode in (0, 1), done.stderr
    (report,) = json.loads(done.stdout)["reports"]
    found = {d["id"]: d["status"] for d in report["diagnoses"]}
    assert done.returncode == bool(found)
    return found, " ".join([report["headline"], *report["notes"]])


def test_a_handbook_of_2024_that_pins_nothing(tmp_path: Path) -> None:
    text = (
        "accelerate>=0.29.2\nbitsandbytes>=0.43.0\ndeepspeed>=0.14.4\npeft>=0.9.0\n"
        "torch>=2.1.2\ntransformers>=4.39.3\ntrl>=0.9.6\n"
    )
    words = ("--trainer", "DPO", "--strategy", "zero3")
    found, _ = ask(tmp_path, {"requirements.txt": text}, "requirements.txt", *words)
    assert found["unwrap-model-keep-torch-compile"] == "cannot-tell"
    # ZeRO-3 is affected in every release that these ranges allow.
    assert found["unwrap-double-yield"] == "applies-if"


def test_a_project_that_installs_deepspeed_by_another_line(tmp_path: Path) -> None:
    # DeepSpeed needs torch while it is built, so it is not in the file; the rest is, exactly.
    text = REST_OF_A_FREEZE + pins(
        torch="2.4.1", trl="0.12.2", transformers="4.46.3", accelerate="0.34.2", peft="0.13.2"
    )
    words = ("--trainer", "PPO", "--ds-config", "zero3.json")
    files = {"r.txt": text, "zero3.json": '{"zero_optimization": {"stage": 3}}'}
    found, said = ask(tmp_path, files, "r.txt", *words)
    assert found["ppo-zero3-save"] == "applies"
    assert found["zero3-register-hooks-rename"] == "cannot-tell"
    assert "r.txt does not list deepspeed" in said


def test_a_few_pins_by_hand_are_no_environment(tmp_path: Path) -> None:
    text = pins(
        torch="2.5.1", trl="0.15.0", transformers="4.49.0", accelerate="1.3.0", datasets="3.2.0"
    ) + pins(**{"huggingface-hub": "0.27.0", "safetensors": "0.4.5", "numpy": "1.26.4"})
    found, _ = ask(tmp_path, {"r.txt": text}, "r.txt", "--trainer", "GRPO")
    assert found["grpo-zero3-optimizer"] == "applies-if"


def test_transformers_from_git_without_a_name(tmp_path: Path) -> None:
    text = f"git+https://github.com/huggingface/transformers.git@{COMMIT}\n" + pins(
        trl="0.24.0", accelerate="1.12.0", torch="2.8.0", peft="0.17.1"
    )
    found, _ = ask(tmp_path, {"r.txt": text}, "r.txt", "--trainer", "GRPO", "--strategy", "ddp")
    assert found["trl-warnings-issued-tf51"] == "cannot-tell"
    assert found["peft-hybridcache-tf5"] == "cannot-tell"


def test_an_unpinned_transformers_does_not_save_ppo(tmp_path: Path) -> None:
    text = pins(trl="0.24.0", deepspeed="0.17.6", accelerate="1.12.0", torch="2.8.0")
    words = ("--trainer", "PPO", "--strategy", "zero3")
    found, _ = ask(tmp_path, {"r.txt": f"{text}transformers\n"}, "r.txt", *words)
    assert found["ppo-zero3-save"] == "applies"
    found, _ = ask(tmp_path, {"r.txt": f"{text}transformers\n"}, "r.txt", "--trainer", "PPO")
    assert found["ppo-zero3-save"] == "applies-if"


def test_an_extra_of_a_dependency_brings_deepspeed(tmp_path: Path) -> None:
    extra = '[package.optional-dependencies]\ndeepspeed = [{ name = "deepspeed" }]\n'
    lock = uv(
        package("tools", "1", 'dependencies = [{ name = "trl", extra = ["deepspeed"] }]\n'),
        package("trl", "0.12.2", extra),
        package("deepspeed", "0.15.2"),
        *(package("transformers", "4.46.3"), package("accelerate", "0.34.2")),
        root=", ".join(
            f'{{ name = "{n}" }}' for n in ("trl", "transformers", "accelerate", "tools")
        ),
    )
    found, said = ask(tmp_path, {"uv.lock": lock}, "uv.lock", "--trainer", "PPO")
    assert found["ppo-zero3-save"] == "applies-if"
    assert "no deepspeed" not in said


def test_a_lock_without_torch_does_not_mean_that_there_is_none(tmp_path: Path) -> None:
    # The image brings torch; a marker that never holds keeps it out of the lock.
    lock = uv(
        *(package("trl", "1.12.0"), package("transformers", "4.57.6"), package("torch", "2.8.0")),
        root='{ name = "trl" }, { name = "transformers" }, '
        '{ name = "torch", marker = "python_version < \'0\'" }',
    )
    words = ("--trainer", "GRPO", "--strategy", "fsdp2")
    found, said = ask(tmp_path, {"uv.lock": lock}, "uv.lock", *words)
    assert found["trl-fsdpmodule-torch25"] == "cannot-tell"
    assert "torch is ignored: its marker does not apply here (Python" in said


def test_a_group_of_a_pylock_counts(tmp_path: Path) -> None:
    def entry(name: str, version: str, marker: str = "") -> str:
        file = f'{{ url = "https://e.org/{name}-{version}.tar.gz", hashes = {{ sha256 = "0" }} }}'
        said = f'marker = "{marker}"\n' if marker else ""
        return f'[[packages]]\nname = "{name}"\nversion = "{version}"\n{said}sdist = {file}\n'

    lock = (
        'lock-version = "1.0"\ncreated-by = "pdm"\nextras = ["train"]\n'
        + entry("trl", "0.12.2")
        + entry("transformers", "4.46.3")
        + entry("accelerate", "0.34.2")
        + entry("deepspeed", "0.15.2", "'train' in extras")
    )
    words = ("--trainer", "PPO", "--device", "cuda")
    found, _ = ask(tmp_path, {"pylock.toml": lock}, "pylock.toml", *words)
    assert found["ppo-zero3-save"] == "applies-if"


def test_an_optional_package_of_poetry_counts(tmp_path: Path) -> None:
    lock = "".join(
        f'[[package]]\nname = "{name}"\nversion = "{version}"\noptional = {optional}\n'
        for name, version, optional in (
            ("trl", "0.12.2", "false"),
            ("transformers", "4.46.3", "false"),
            ("deepspeed", "0.15.2", "true"),
        )
    )
    lock += '[metadata]\nlock-version = "2.0"\npython-versions = ">=3.10"\n'
    words = ("--trainer", "PPO", "--zero-stage", "3")
    found, _ = ask(tmp_path, {"poetry.lock": lock}, "poetry.lock", *words)
    assert found["ppo-zero3-save"] == "applies"
    # Nor does a lock without accelerate mean that there is none.
    assert found["accelerator-init-order-deepspeed"] == "cannot-tell"


def test_a_script_of_two_trainers_of_which_one_has_an_adapter(tmp_path: Path) -> None:
    script = (
        "from trl import GRPOConfig, GRPOTrainer, SFTTrainer\n"
        "SFTTrainer(model, peft_config=LoraConfig()).train()\n"
        "GRPOTrainer(model, args=GRPOConfig(use_vllm=True)).train()\n"
    )
    text = pins(trl="0.16.1", transformers="4.50.3", accelerate="1.4.0", torch="2.6.0")
    files = {"r.txt": text, "train.py": script}
    words = ("--script", "train.py", "--strategy", "fsdp1")
    found, _ = ask(tmp_path, files, "r.txt", *words)
    assert found["grpo-fsdp-ref-device"] == "applies-if"


def test_a_registry_of_trainers(tmp_path: Path) -> None:
    script = (
        'TRAINERS = {"sft": SFTTrainer, "grpo": GRPOTrainer}\n'
        "warm_up = SFTTrainer(model)\n"
        "TRAINERS[kind](model).train()\n"
    )
    text = pins(trl="0.15.0", transformers="4.49.0", accelerate="1.3.0", deepspeed="0.15.4")
    files = {"r.txt": text, "train.py": script}
    words = ("--script", "train.py", "--strategy", "zero3", "--set", "use_vllm=false")
    found, _ = ask(tmp_path, files, "r.txt", *words)
    assert found["grpo-zero3-optimizer"] == "applies"


def test_an_image_of_nvidia(tmp_path: Path) -> None:
    wheel = "torch-2.6.0a0+ecf3bae40a.nv25.1-cp312-cp312-linux_x86_64.whl"
    text = f"torch @ file:///opt/{wheel}\n" + pins(
        trl="1.0.0", transformers="4.57.6", accelerate="1.12.0"
    )
    words = ("--trainer", "GRPO", "--strategy", "ddp")
    found, said = ask(tmp_path, {"r.txt": text}, "r.txt", *words)
    assert found["trl-fsdpmodule-torch25"] == "cannot-tell"
    assert "is a build between two releases" in said


def test_a_trainer_that_nobody_ever_ran(tmp_path: Path) -> None:
    text = pins(
        trl="1.16.0", transformers="5.23.0", accelerate="1.15.0", torch="2.15.0", peft="0.21.2"
    )
    words = ("--trainer", "AsyncGRPO", "--strategy", "fsdp2")
    found, said = ask(tmp_path, {"r.txt": text + REST_OF_A_FREEZE}, "r.txt", *words)
    assert found == {}
    assert (
        "no cell was ever run for the AsyncGRPO trainer with FSDP2: this report says nothing"
        in said
    )


@pytest.mark.parametrize("marker", ["python_version < '3'", "sys_platform == 'plan9'"])
def test_what_is_for_other_machines_only_is_said_to_be(tmp_path: Path, marker: str) -> None:
    text = pins(trl="0.12.2", transformers="4.46.3") + f"deepspeed==0.15.2; {marker}\n"
    _, said = ask(tmp_path, {"r.txt": text}, "r.txt", "--trainer", "PPO")
    assert "deepspeed is ignored: its marker does not apply here" in said
    _, said = ask(tmp_path, {"r.txt": f"{text}deepspeed==0.16.5"}, "r.txt", "--trainer", "PPO")
    assert "deepspeed has other versions where the markers differ from here" in said
