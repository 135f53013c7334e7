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
