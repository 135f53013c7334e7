"""Checks a stack on a machine that has a GPU and torch, and no network.

It needs nothing but a Python 3.11 or newer with torch, and what lies beside this file: the
application ``trl-compat.pyz`` and a folder ``wheels`` (``nox -s kit`` makes all three).  The wheels
are put beside the torch that is there, in an environment of their own; nothing else is changed.

    python check_on_gpu.py                          # writes ./trl-compat-check
    python check_on_gpu.py --minutes 20 -- --profile full

Exit codes are those of ``trl-compat check``; 2 if something is missing, 130 if time was over: what
was finished by then is in the results.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
ASK = """
import json, sys
import torch
sites = [path for path in sys.path if path.endswith("-packages")]
print(json.dumps([torch.__version__, torch.cuda.device_count(), sys.version_info[:2], sites]))
"""
# Seconds that reports take when time is over.
LAST = 30.0
EXIT_USAGE, EXIT_INTERRUPTED = 2, 130


def refuse(sentence: str) -> None:
    """Ends with a sentence.

    Raises:
        SystemExit: always.
    """
    print(f"check_on_gpu: {sentence}", file=sys.stderr)
    sys.exit(EXIT_USAGE)


def ask(python: str) -> tuple[str, int, str, list[str]]:
    """The version of torch, its number of GPUs, the version of Python, and where packages are."""
    done = subprocess.run([python, "-c", ASK], capture_output=True, text=True, check=False)
    try:
        torch, gpus, (major, minor), sites = json.loads(done.stdout.splitlines()[-1])
    except (ValueError, IndexError, TypeError):
        last = (done.stderr.strip().splitlines() or ["it printed nothing"])[-1]
        refuse(f"{python} cannot import torch ({last}); name another interpreter: --python")
    return torch, gpus, f"{major}.{minor}", sites


def fits(wheel: Path, python: str) -> bool:
    """Whether a wheel is for a version of Python, by the tags in its name."""
    tags, abi = (part.split(".") for part in wheel.stem.split("-")[-3:-1])
    minor = int(python.partition(".")[2])
    oldest = (int(tag.removeprefix("cp3") or 0) for tag in tags if tag.startswith("cp3"))
    if "abi3" in abi:
        return any(minor >= one for one in oldest)
    return minor in oldest or any(tag.startswith("py3") for tag in tags)


def install(wheels: Sequence[Path], site: Path) -> None:
    """Unpacks wheels; programs that they bring are left out, as no cell needs them."""
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as packed:
            for entry in packed.infolist():
                name = entry.filename
                if ".data/" in name:
                    _, _, inner = name.partition(".data/")
                    kind, _, name = inner.partition("/")
                    if kind not in ("purelib", "platlib"):
                        continue
                target = (site / name).resolve()
                if entry.is_dir() or site.resolve() not in target.parents:
                    continue
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(packed.read(entry))


def environment(python: str, sites: Sequence[str], wheels: Sequence[Path], folder: Path) -> Path:
    """An environment with the wheels and, behind them, what the interpreter has; its interpreter.

    By a list of paths: an environment that is made from another one would not see its packages.
    """
    made = [python, "-m", "venv", "--without-pip", str(folder)]
    done = subprocess.run(made, capture_output=True, text=True, check=False)
    if done.returncode:
        refuse(f"{python} cannot make an environment: {(done.stdout + done.stderr).strip()[-300:]}")
    inside = folder / "bin" / "python"
    ask_site = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site = subprocess.run([inside, "-c", ask_site], capture_output=True, text=True, check=True)
    own = Path(site.stdout.strip())
    install(wheels, own)
    (own / "what-is-there.pth").write_text("".join(f"{path}\n" for path in sites))
    return inside


def run(command: Sequence[str], seconds: float) -> int:
    """Runs the check; when time is over it is interrupted, and then it writes its results."""
    process = subprocess.Popen(command, start_new_session=True)
    try:
        return process.wait(seconds - LAST)
    except (subprocess.TimeoutExpired, KeyboardInterrupt) as why:
        process.send_signal(signal.SIGINT)
        over = isinstance(why, subprocess.TimeoutExpired)
        print(f"check_on_gpu: {'time is over' if over else 'interrupted'}; writing the results")
        try:
            process.wait(LAST)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        return EXIT_INTERRUPTED


def main(words: Sequence[str]) -> int:
    """The whole: looks, installs, checks."""
    parser = argparse.ArgumentParser(
        prog="check_on_gpu.py",
        description="Check a stack on a machine with a GPU, torch and no network.",
        epilog="Options of trl-compat check follow --.",
    )
    parser.add_argument("--python", default=sys.executable, help="interpreter that has torch")
    parser.add_argument("--kit", type=Path, default=HERE, help="folder of the pyz and the wheels")
    parser.add_argument("--reports", type=Path, default=Path("trl-compat-check"))
    parser.add_argument("--minutes", type=float, default=10.0, help="for everything")
    parser.add_argument("--cpu", action="store_true", help="on CPU ranks, to try the kit out")
    parser.add_argument("more", nargs="*", help="options for trl-compat check")
    asked = parser.parse_args(words)
    application = asked.kit / "trl-compat.pyz"
    wheels = sorted((asked.kit / "wheels").glob("*.whl"))
    if not application.is_file() or not wheels:
        refuse(f"{asked.kit}: there should be trl-compat.pyz and wheels; make them: nox -s kit")
    torch, gpus, python, sites = ask(asked.python)
    if not gpus and not asked.cpu:
        refuse(f"torch {torch} of {asked.python} sees no GPU; is the driver there?")
    if others := [wheel.name for wheel in wheels if not fits(wheel, python)]:
        refuse(f"{others[0]} is not for Python {python}; make the kit for it: nox -s kit -- "
               f"--python {python}")  # fmt: skip
    device = ["--device", "cpu"] if asked.cpu else ["--device", "cuda"]
    if gpus == 1 and not asked.cpu:
        device.append("--share-gpu")
    print(f"check_on_gpu: torch {torch}, {gpus} GPUs, {len(wheels)} wheels", flush=True)
    with tempfile.TemporaryDirectory(prefix="trl-compat-gpu-") as folder:
        inside = environment(asked.python, sites, wheels, Path(folder) / "environment")
        command = [asked.python, str(application), "check", "--python", str(inside), *device]
        command += ["--reports", str(asked.reports), *asked.more]
        return run(command, asked.minutes * 60)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
