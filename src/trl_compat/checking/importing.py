"""Whether the packages of an environment can be imported there, and which GPUs its torch sees.

This is asked in a process kept to itself, as cells are: importing a package runs its code.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from trl_compat.advisories import Advisory
from trl_compat.cells.rank_records import RaisedError
from trl_compat.errors import BadInput
from trl_compat.machine import isolation, processes
from trl_compat.running.execution import bundle, cell_environment
from trl_compat.stacks.in_place.environment import EnvironmentInPlace
from trl_compat.stacks.in_place.record import InPlace

LIMIT = 300.0
ANSWER = "trl-compat-imports: "
PROBE = """
import importlib, json, sys
sys.path.insert(0, sys.argv[1])
from trl_compat.runtime import signature
found = {"failed": {}, "gpus": 0}
for name in sys.argv[2:]:
    try:
        importlib.import_module(name)
    except BaseException as error:
        found["failed"][name] = signature.describe(error)
torch = sys.modules.get("torch")
try:
    found["gpus"] = torch.cuda.device_count()
except BaseException:
    pass
print(ORDER + json.dumps(found), flush=True)
""".replace("ORDER", repr(f"\n{ANSWER}"))


@dataclass(frozen=True)
class Imports:
    """What came of importing.

    Attributes:
        failed: what was raised, by package.
        gpus: how many GPUs torch can use.
        ended: how the process ended if it did not get through, in words.
    """

    failed: dict[str, RaisedError]
    gpus: int = 0
    ended: str = ""


def imports(record: InPlace, packages: Sequence[str], gpus: tuple[str, ...] = ()) -> Imports:
    """Imports packages in an environment, in this order."""
    environment = EnvironmentInPlace(record)
    with tempfile.TemporaryDirectory(prefix="trl-compat-imports-") as folder:
        work, home = Path(folder) / "work", Path(folder) / "work" / "home"
        (home / "tmp").mkdir(parents=True)
        ours = bundle.make(Path(folder) / "bundle")
        env = cell_environment.build(environment, home, gpus=gpus, run_id=f"imports-{work}")
        del env["PYTHONPYCACHEPREFIX"]  # what its installer has compiled may be read, not written
        readable = (ours, *isolation.interpreter_files(record.python), *record.readable)
        done = processes.run_contained(
            [str(record.python), "-c", PROBE, str(ours), *packages],
            env=env,
            cwd=work,
            reach=isolation.Reach(readable, (work,), bool(gpus)),
            limit=LIMIT,
        )
    _, answered, said = done.stdout.rpartition(ANSWER)
    try:
        answer = json.loads(said.splitlines()[0]) if answered else {}
        failed = {n: RaisedError.model_validate(e) for n, e in answer["failed"].items()}
        return Imports(failed, int(answer["gpus"]))
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, ValidationError):
        last = (done.stdout.strip().splitlines() or ["it printed nothing"])[-1][:200]
        return Imports({}, ended=f"exit status {done.returncode}: {last}")


def refuse_broken(
    named: str, found: Imports, masks: Iterable[Advisory], versions: dict[str, str]
) -> None:
    """Refuses an environment one of whose packages cannot be imported.

    An error that an advisory records is a result, and will be told as one.

    Raises:
        BadInput: the first such package, and what it raised.
    """
    if found.ended:
        raise BadInput(f"{named}: its packages cannot be imported ({found.ended})")
    known = tuple(masks)
    for package, error in found.failed.items():
        if any(mask.symptom_of(error.model_dump(mode="json")) for mask in known):
            continue
        message = " ".join(error.message.split())[:200]
        raise BadInput(
            f"{named}: {package} {versions.get(package, '')} cannot be imported there "
            f"({error.exception}: {message}); reinstall it, or look for a known cause: "
            "trl-compat doctor --python"
        )
