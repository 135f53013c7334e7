"""Doctor run on small files."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

CLI = Path(sys.executable).with_name("trl-compat")


OLD = """trl==0.12.2
transformers==4.46.3
torch==2.4.1
deepspeed==0.15.2
accelerate==0.34.2
peft==0.13.2
"""


NEW = """trl==1.16.0
transformers==5.23.0
torch==2.15.0
deepspeed==0.19.8
accelerate==1.15.0
peft==0.21.2
"""


# What every environment with TRL has besides.
REST_OF_A_FREEZE = "".join(
    f"{name}==1.0\n"
    for name in (
        *("datasets", "huggingface-hub", "safetensors", "tokenizers", "numpy", "pyyaml"),
        *("packaging", "multiprocess", "xxhash", "filelock"),
    )
)


def doctor(folder: Path, *words: str, text: str = OLD) -> subprocess.CompletedProcess[str]:
    (folder / "requirements.txt").write_text(text)
    command = [str(CLI), "doctor", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)


def ids(done: subprocess.CompletedProcess[str], *status: str) -> set[str]:
    (report,) = json.loads(done.stdout)["reports"]
    return {d["id"] for d in report["diagnoses"] if d["status"] in (status or FOUND)}


FOUND = ("applies", "applies-if")


JSON = ("requirements.txt", "--format", "json")


IGNORE = """[tool.trl-compat]
ignore = [{{failure = "unwrap-double-yield", reason = "we stop at any exception", expires = {}}}]
"""


def own_record(*blocks: str) -> str:
    """A record of one's own, with these blocks as the scopes that are affected."""
    affected = ", ".join(f"{{symptom: x, {block}}}" for block in blocks)
    return (
        "{id: mine, title: t, summary: s, severity: slow, cause: c, references: [], masks: true,"
        f" symptoms: {{x: {{exception: E, message: m, where: w}}}}, affected: [{affected}]}}"
    )


def said_of_own(folder: Path, text: str, have: str, *words: str) -> dict[str, object] | None:
    """What doctor says of a record of one's own."""
    (folder / "own").mkdir(exist_ok=True)
    (folder / "own" / "mine.yaml").write_text(text)
    done = doctor(folder, *JSON, "--advisories", "own", *words, text=have)
    assert done.returncode in (0, 1), done.stderr
    (report,) = json.loads(done.stdout)["reports"]
    return next((d for d in report["diagnoses"] if d["id"] == "mine"), None)
