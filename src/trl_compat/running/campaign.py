"""One run of a selection of cells: everything that pytest and its workers need to run them.

The campaign is written to a file, from which every worker process of pytest-xdist reads it.
"""

from __future__ import annotations

import errno
import hashlib
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from trl_compat.advisories import Catalogue
from trl_compat.cells import devices
from trl_compat.cells.expectations import Expectation
from trl_compat.cells.observation import Launch, Observation
from trl_compat.cells.outcome import Outcome
from trl_compat.cells.plan import Cell
from trl_compat.cells.verdict import Verdict, agreed, decide
from trl_compat.errors import BadInput, HarnessError
from trl_compat.files.project import Project
from trl_compat.machine.gpus import SHARED
from trl_compat.running.execution import bundle
from trl_compat.running.execution.runner import StackRunner, not_started
from trl_compat.running.execution.watch import Limits
from trl_compat.running.placement import gpu_share
from trl_compat.running.store import CellRecord, ResolvedStack, Store, content_key, unresolvable
from trl_compat.runtime.signature import errnos
from trl_compat.runtime.spec import CellSpec
from trl_compat.stacks import providing
from trl_compat.stacks.environments import EnvironmentFailed, Unavailable, Unresolvable, cache
from trl_compat.stacks.environments.damage import Depth
from trl_compat.stacks.matrix import Matrix
from trl_compat.stacks.providing import Environment


class RunSpec(BaseModel):
    """The campaign as data.

    Attributes:
        matrix: the stacks, as they were read when the command began; ``catalogue`` the advisories.
        cells: what to run, in order.
        limits: when a cell is stopped.
        preload: False starts every cell by plain ``torchrun``.
        repeat: how often each cell is run.
        confirm: the cells have surprised; run each once more, by plain ``torchrun``.
        by_failure: cells of a stack go to several workers, those of a failure to one.
        run: the id of the run of the command that this is a part of.
    """

    model_config = ConfigDict(frozen=True)

    root: Path
    matrix_file: Path
    reports: Path
    state: Path
    models: dict[str, str]
    matrix: Matrix
    catalogue: Catalogue
    cells: list[Cell]
    limits: Limits
    preload: bool = True
    repeat: int = 1
    confirm: bool = False
    by_failure: bool = False
    run: str = ""

    @property
    def project(self) -> Project:
        """The folders of the project."""
        return Project(self.root, self.matrix_file, self.reports, self.state)


class Campaign:
    """Runs cells of an order, one stack at a time, and keeps what it observes.

    What is observed in a damaged environment says nothing of its stack.  Distributions and versions
    are compared before a cell is kept, files too before a surprise is, and once more when a stack
    is left: what was observed since the last time that all was well is then a harness error, and
    the stack goes on in an environment that is made again.
    """

    def __init__(self, order: RunSpec, store: Store | None = None) -> None:
        self.order = order
        self.project = order.project
        self.matrix, self.catalogue = order.matrix, order.catalogue
        self.store = store or Store(self.project.state)
        self._keys: dict[tuple[str | None, ...], str] = {}
        self._controls: dict[str, tuple[CellRecord, Outcome]] = {}
        self._bundle = bundle.contents()
        self._locks: dict[str, str] = {}
        self._sources: dict[Path, bytes] = {}
        self._bundle_digests: dict[tuple[Path, str | None], str] = {}
        self._stack: str | None = None
        self._runner: StackRunner | None = None
        self._environment: Environment | None = None
        self._failed: Exception | None = None
        self._files_unchecked: list[Cell] = []
        self._damaged: Counter[str] = Counter()

    def close(self) -> None:
        """Ends every process of the campaign, and vouches for what it has kept or takes it back."""
        if self._runner is not None:
            self._runner.close()
        if self._environment is not None and self._files_unchecked:
            wrong = self._environment.wrong(Depth.SIZES)
            if wrong:
                self._take_back(wrong)
        self._files_unchecked = []
        self._runner, self._stack, self._environment, self._failed = None, None, None, None

    def reproduction(self, cell: Cell) -> Path:
        """The module that a cell runs."""
        module = self.catalogue.reproduction(cell.failure).module
        return self.project.reproductions / f"{module}.py"

    def conditions(self, cell: Cell) -> dict[str, object]:
        """The conditions of a cell, with its fix's; an invariant's tolerance goes with them."""
        variant = self.catalogue.reproduction(cell.failure).conditions_of(cell.variant)
        wanted: dict[str, object] = {**variant, **cell.conditions}
        if invariant := self.catalogue.invariants.get(cell.failure):
            wanted["tolerance"] = invariant.tolerated(wanted)
        return {name: value for name, value in wanted.items() if value is not None}

    def key(self, cell: Cell, lock_sha256: str) -> str:
        """The content key under which the cell would be observed now."""
        what = (cell.id, cell.entry, cell.code, cell.device, lock_sha256)
        if what in self._keys:
            return self._keys[what]
        reproduction = self.reproduction(cell)
        self._keys[what] = content_key(
            cell,
            lock_sha256=lock_sha256,
            conditions=self.conditions(cell),
            reproduction_digest=hashlib.sha256(self._source(reproduction)).hexdigest(),
            model_digest=self.order.models[cell.model],
            bundle_digest=self._bundle_digest(reproduction, cell.entry) + bundle.more(cell.device),
        )
        return self._keys[what]

    def _source(self, module: Path) -> bytes:
        if module not in self._sources:
            self._sources[module] = module.read_bytes()
        return self._sources[module]

    def _bundle_digest(self, reproduction: Path, entry: str | None) -> str:
        """The digest of what a cell can import of ours."""
        key = (reproduction, entry)
        if key not in self._bundle_digests:
            found = bundle.digest(self._bundle, self._source(reproduction), entry)
            self._bundle_digests[key] = found
        return self._bundle_digests[key]

    def unknown(self, cells: Sequence[Cell]) -> list[Cell]:
        """The cells without a current record; each stack is looked up once, found or not."""
        resolved = {stack: self._kept_lock(stack) for stack in {cell.stack for cell in cells}}
        return [cell for cell in cells if not resolved[cell.stack] or self.known(cell) is None]

    def known(self, cell: Cell) -> CellRecord | None:
        """The record of a cell if nothing changed since; looks at the cache, resolves nothing."""
        lock_sha256 = self._kept_lock(cell.stack)
        record = self.store.current(cell, self.key(cell, lock_sha256)) if lock_sha256 else None
        if record is None:
            return None
        # Who asks for torchrun wants it seen there; preloading is to say the same, only sooner.
        return record if self.order.preload or record.by_torchrun else None

    def reportable(self, cell: Cell, since: str) -> CellRecord | None:
        """The record to report for a cell: a current one, or what kept it from running since then.

        An outdated record is no result: its reproduction, lock or models are others by now.
        """
        record = self.store.read(cell.id)
        if record is None or record.final:
            return self.known(cell) if record else None
        return record if record.observations[0].started_at >= since else None

    def _kept_lock(self, stack: str) -> str | None:
        """The digest of the stack's lock, or of the answer that there is no such stack."""
        if stack not in self._locks:
            kept = providing.answered(self.matrix.stacks[stack])
            if kept is None:
                return None  # not remembered: a worker may be making it
            self._locks[stack] = kept
        return self._locks[stack]

    def run(self, cell: Cell) -> Verdict:
        """Runs a cell as often as was asked for and keeps the record.

        Raises:
            BadInput: the disk is full, or something else of the machine has to be mended first.
        """
        environment = self._ready(cell.stack)
        if environment is None:
            assert self._failed is not None
            return self.not_started(cell, self._failed)
        launch = Launch.PRELOADED if self.order.preload else Launch.TORCHRUN
        record = CellRecord(
            key=self.key(cell, environment.lock.sha256),
            cell_id=cell.id,
            surroundings=ResolvedStack(
                lock_sha256=environment.lock.sha256, packages=environment.lock.packages
            ),
            observations=tuple(self._observe(cell, launch) for _ in range(self.order.repeat)),
            run=self.order.run,
        )
        return self._keep_if_sound(record, cell, environment)

    def not_started(self, cell: Cell, why: Exception) -> Verdict:
        """Keeps the record of a cell whose environment could not be made; BadInput is raised."""
        match why:
            case Unavailable():
                outcome = Outcome.UNAVAILABLE
            case Unresolvable():
                outcome = Outcome.UNRESOLVABLE
            case BadInput():
                raise why
            case _:
                outcome = Outcome.HARNESS_ERROR
        seen = not_started(outcome, str(why), world_size=cell.world_size)
        record = CellRecord.of_nothing(seen, cell, self.order.run)
        if unresolvable(seen) and (digest := self._kept_lock(cell.stack)):
            record = record.model_copy(update={"key": self.key(cell, digest)})
        return self._keep(record, cell)

    def confirm(self, cell: Cell) -> Verdict:
        """Runs a cell that surprised once more, by plain ``torchrun``, and keeps that beside it.

        Raises:
            BadInput: the disk is full.
        """
        record = self.store.read(cell.id)
        if record is None:
            return self.run(cell)
        environment = self._ready(cell.stack)
        if environment is None:
            return self.verdict(cell, record)  # what was seen is worth more than nothing
        seen = self._observe(cell, Launch.TORCHRUN)
        both = record.model_copy(update={"confirmation": seen})
        return self._keep_if_sound(both, cell, environment)

    def _keep_if_sound(self, record: CellRecord, cell: Cell, environment: Environment) -> Verdict:
        """Keeps a record, unless its environment was damaged while it was made."""
        verdict = self.verdict(cell, record)
        surprises = record.confirmation is not None or not agrees(cell.expectation, verdict)
        wrong = environment.wrong(Depth.CONTENTS if surprises else Depth.VERSIONS)
        self._files_unchecked.append(cell)
        if not wrong:
            if surprises:
                self._files_unchecked = []
            return self._keep(record, cell)
        self._take_back(wrong)
        self._files_unchecked = []
        self.close()  # with the processes that have the damaged modules in memory
        taken_back = self.store.read(cell.id)
        assert taken_back is not None
        return self.verdict(cell, taken_back)

    def _take_back(self, wrong: str) -> None:
        """Makes harness errors of the cells since the last time that the environment was sound."""
        assert self._stack is not None
        assert self._environment is not None
        self._damaged[self._stack] += 1
        sentence = (
            f"the environment of {self._stack} was damaged while its cells ran ({wrong}); "
            f"{self._environment.mend}"
        )
        for cell in self._files_unchecked:
            seen = not_started(Outcome.HARNESS_ERROR, sentence, world_size=cell.world_size)
            self.store.write(CellRecord.of_nothing(seen, cell, self.order.run))

    def unconfirmed(self, cell: Cell) -> bool:
        """Whether the record of a cell surprises and no second run has confirmed that yet."""
        record = self.store.read(cell.id)
        if record is None or record.confirmation or not record.started:
            return False
        verdict = self.verdict(cell, record)
        return verdict.outcome is not Outcome.UNSTABLE and not agrees(cell.expectation, verdict)

    def _observe(self, cell: Cell, launch: Launch) -> Observation:
        assert self._runner is not None
        try:
            spec = CellSpec(
                cell=cell.id,
                reproduction=str(self.reproduction(cell)),
                variant=cell.variant,
                conditions=self.conditions(cell),
                model=cell.model,
                model_dir=str(self.project.models / cell.model),
                world_size=cell.world_size,
                device=devices.of_ranks(cell.device),
                folder=str(self._runner.folder(cell.failure)),
                fix=cell.entry,
                fix_code=cell.code,
            )
            return self._runner.run(spec, limits=self.order.limits, launch=launch)
        except Exception as error:
            full = [n for n in errnos(error) if n in (errno.ENOSPC, errno.EDQUOT)]
            if full:
                raise BadInput(
                    f"cell {cell.id}: {os.strerror(full[0])}; the results so far are kept"
                ) from None
            return not_started(
                Outcome.HARNESS_ERROR,
                f"{type(error).__name__}: {error}; run it again, and report it if it happens again",
                world_size=cell.world_size,
            )

    def _keep(self, record: CellRecord, cell: Cell) -> Verdict:
        self.store.write(record)
        return self.verdict(cell, record)

    def verdict(self, cell: Cell, record: CellRecord) -> Verdict:
        """The verdict on a record: that of its runs if they agree, else ``unstable``."""
        return agreed(self.judge_each(cell, record))

    def judge_each(self, cell: Cell, record: CellRecord) -> list[Verdict]:
        """The verdict on every single observation of a record."""
        return [self._judge(cell, seen) for seen in record.attempts]

    def _judge(self, cell: Cell, observed: Observation) -> Verdict:
        advisory = self.catalogue[cell.failure]
        control = self._control(cell)
        try:
            predicted = cell.expectation.symptom
            return decide(observed, advisory, self.catalogue.masks, control, predicted)
        except Exception as error:  # no cell costs another its verdict
            said = f"the observation cannot be judged ({type(error).__name__}: {error})"
            return Verdict(
                outcome=Outcome.HARNESS_ERROR, reason=f"{said}; run it again with --fresh"
            )

    def _control(self, cell: Cell) -> Outcome | None:
        """Outcome of the control of a cell; ``unavailable`` if it was not run, None without one."""
        variant = self.catalogue.reproduction(cell.failure).control
        if cell.is_control or variant is None:
            return None
        plain = {"variant": variant, "fix": None, "entry": None, "code": "", "wrong_fix": False}
        control = cell.model_copy(update={**plain, "conditions": {}, "is_control": True})
        record = self.known(control)
        if record is None:
            return Outcome.UNAVAILABLE
        if self._controls.get(control.id, (None,))[0] is not record:
            self._controls[control.id] = (record, self.verdict(control, record).outcome)
        return self._controls[control.id][1]

    def _ready(self, stack: str) -> Environment | None:
        """The environment of a stack, its runner started; None if it cannot be made."""
        if stack != self._stack:
            self.close()
            self._stack = stack
            try:
                if self._damaged[stack] > 1:
                    raise HarnessError(
                        f"the environment of {stack} was damaged again after it was rebuilt; "
                        f"find out which program writes to {cache.root()}"
                    )
                self._environment = providing.ensure(stack, self.matrix.stacks[stack])
            except (EnvironmentFailed, BadInput, HarnessError) as error:
                self._failed = error
                return None
            self._runner = StackRunner(
                self._environment,
                readable=(
                    self.project.reproductions,
                    self.project.models,
                    *self._environment.readable,
                ),
                gpus=gpu_share(self.order.cells),
                share_gpu=any(cell.device == SHARED for cell in self.order.cells),
                preload=self.order.preload,
            )
        return self._environment


def agrees(expected: Expectation, verdict: Verdict) -> bool:
    """Whether a verdict is what the advisories predict.

    A cell that could not be run contradicts nothing, and where nothing is predicted nothing can be
    contradicted.  That a stack which a grid has made cannot be installed is a result of the grid.
    """
    if verdict.outcome is Outcome.UNAVAILABLE or expected.outcome is None:
        return True
    if verdict.outcome is Outcome.UNRESOLVABLE and expected.may_be_unresolvable:
        return True
    if verdict.outcome is Outcome.MASKED and verdict.masked_by in expected.or_masked_by:
        return True
    if verdict.outcome is not expected.outcome:
        return False
    match expected.outcome:
        case Outcome.REPRODUCED:
            return expected.symptom in (None, verdict.symptom)
        case Outcome.MASKED:
            return expected.masked_by in (None, verdict.masked_by)
    return True
