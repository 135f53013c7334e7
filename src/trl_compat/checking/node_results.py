"""What came of each launch over several nodes: judged by the records of its ranks, told, kept."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.specifiers import SpecifierSet

from trl_compat.cells.outcome import Outcome
from trl_compat.cells.rank_records import RankRecord
from trl_compat.checking.network import Network
from trl_compat.files.models import FrozenModel
from trl_compat.files.writing import write_atomically

SAVE, RESUME = "save", "resume"


@dataclass(frozen=True)
class Layout:
    """Where checkpoints go, and what that comes to.

    Attributes:
        about: for people.
        shared: one folder that every node sees; else each node has its own.
        save_on_each_node: the option of that name is set.
        write_latest: every node writes DeepSpeed's file ``latest`` after saving, if it is missing.
        fails: how resuming is known to fail on other nodes than the first, as the exception and a
            part of its message; None if it is not.
        deepspeed: the releases that fail so.
    """

    about: str
    shared: bool
    save_on_each_node: bool = False
    write_latest: bool = False
    fails: tuple[str, str] | None = None
    deepspeed: str = ">=0"

    def failure(self, phase: str, version: str) -> tuple[str, str] | None:
        """How a phase is known to fail with a release of DeepSpeed."""
        known = phase == RESUME and SpecifierSet(self.deepspeed).contains(version, prereleases=True)
        return self.fails if known else None


LAYOUTS = {
    "shared": Layout("one folder that every node sees", shared=True),
    "node-local": Layout(
        "a folder of its own on each node, options as they are by default",
        shared=False,
        # Written by the first rank alone.
        fails=("FileNotFoundError", "trainer_state.json"),
    ),
    "node-local-each": Layout(
        "a folder of its own on each node, save_on_each_node=True",
        shared=False,
        save_on_each_node=True,
        # The file "latest": from 0.17.1 on DeepSpeed leaves use_node_local_storage out of account
        # where it writes it (read up to 0.19.8), and so it is missing on other nodes.
        fails=("ValueError", "failed to resume from checkpoint"),
        deepspeed=">=0.17.1",
    ),
    "node-local-latest": Layout(
        "the same, and the file latest of the first node on every node",
        shared=False,
        save_on_each_node=True,
        write_latest=True,
    ),
}


class LaunchResult(FrozenModel):
    """What came of one launch.

    Attributes:
        outcome: ``reproduced`` is the failure that the layout is known for.
        agrees: it is the expected one.
        said: why, in a sentence; empty for a pass.
        checks: post-conditions that held on every rank seen here.
        holds: what each node seen here held of the checkpoint when it had been saved; ``whole``
            is what the saved model was there.
    """

    layout: str
    phase: str
    outcome: Outcome
    agrees: bool
    said: str
    checks: tuple[str, ...]
    holds: dict[int, tuple[str, ...]]
    whole: dict[int, str]
    evidence: str
    seconds: float


def judge(
    name: str,
    phase: str,
    network: Network,
    records: dict[int, RankRecord],
    evidence: str,
    seconds: float,
    deepspeed: str,
) -> LaunchResult:
    """What a launch shows, by the records of the ranks that ran here."""
    known = LAYOUTS[name].failure(phase, deepspeed)
    outcome, said = _outcome(known, network, records)
    wanted = Outcome.REPRODUCED if known else Outcome.PASS
    checks = [{check.name for check in one.checks if check.holds} for one in records.values()]
    holds = {
        int(one.observations["node"]): tuple(map(str, one.observations["checkpoint"]))
        for one in records.values()
        if isinstance(one.observations.get("checkpoint"), list)
    }
    whole = {
        int(one.observations["node"]): str(one.observations["final"])
        for one in records.values()
        if "final" in one.observations
    }
    return LaunchResult(
        layout=name,
        phase=phase,
        outcome=outcome,
        agrees=outcome is wanted,
        said=said,
        checks=tuple(sorted(set.union(*checks))) if checks else (),
        holds=dict(sorted(holds.items())),
        whole=dict(sorted(whole.items())),
        evidence=evidence,
        seconds=seconds,
    )


def _outcome(
    known: tuple[str, str] | None, network: Network, records: dict[int, RankRecord]
) -> tuple[Outcome, str]:
    expected = len(network.here) * network.ranks
    silent = expected - len(records)
    waited = f"; {silent} of {expected} ranks waited for it and were ended" if silent else ""
    # The first node has the file; there one only sees that the others have gone.
    only_first = network.endpoint is not None and network.node == 0
    errors = sorted(
        ((one.ended, rank, one) for rank, one in records.items() if one.failed),
        key=lambda found: found[:2],
    )
    for _, rank, one in errors:
        assert one.error is not None
        if known and one.error.exception == known[0] and known[1] in one.error.message:
            return Outcome.REPRODUCED, f"rank {rank}: {_sentence(one)}{waited}"
    if errors:
        _, rank, one = errors[0]
        outcome = Outcome.REPRODUCED if known and only_first else Outcome.OTHER_FAILURE
        return outcome, f"rank {rank}: {_sentence(one)}{waited}"
    if any(one.status == "not-applicable" for one in records.values()):
        return Outcome.NOT_APPLICABLE, next(
            _sentence(one) for one in records.values() if one.status == "not-applicable"
        )
    if silent and known and only_first:
        return Outcome.REPRODUCED, f"{silent} of {expected} ranks waited for the other nodes"
    if silent:
        return Outcome.CRASH, f"{silent} of {expected} ranks left no record"
    if not any(one.checks for one in records.values()):
        return Outcome.VACUOUS, Outcome.VACUOUS.sentence
    return Outcome.PASS, ""


def _sentence(record: RankRecord) -> str:
    assert record.error is not None
    return f"{record.error.exception}: {' '.join(record.error.message.split())[:300]}"


def lines(result: LaunchResult) -> Iterator[str]:
    """A launch, for people."""
    expected = "" if result.agrees else ", not as expected"
    head = f"{result.layout}, {result.phase}: {result.outcome.mark} {result.outcome}{expected}"
    yield f"{head} ({result.evidence}, {result.seconds:.0f} s)"
    if result.said:
        yield f"  {result.said}"
    if result.checks:
        yield f"  holds: {', '.join(result.checks)}"
    everything = {name for files in result.holds.values() for name in files}
    for node, files in result.holds.items():
        lacks = sorted(everything - set(files))
        what = f"lacks {', '.join(lacks)}" if lacks else "lacks nothing"
        yield f"  node {node} has {len(files)} of {len(everything)} files of the checkpoint, {what}"
        yield f"  node {node}, the saved model: {result.whole.get(node, 'not seen')}"


def write(path: Path, versions: Mapping[str, str], results: Sequence[LaunchResult]) -> None:
    """Writes the results of a run, with the versions of its stack."""
    document = {
        "stack": dict(versions),
        "launches": [result.model_dump(mode="json") for result in results],
    }
    text = json.dumps(document, indent=1, ensure_ascii=False)
    write_atomically(path, f"{text}\n")


def agree(results: Sequence[LaunchResult]) -> bool:
    """Whether everything is as expected, and something was tried."""
    return bool(results) and all(result.agrees for result in results)
