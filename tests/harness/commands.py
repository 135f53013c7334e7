"""The command line, as its users call it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.harness.conftest import ROOT

CLI = Path(sys.executable).with_name("trl-compat")


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(CLI), *words], capture_output=True, text=True, check=False, cwd=ROOT)
