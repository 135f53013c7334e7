"""Before the cells of a run: which of its stacks cannot be installed, asked of all at once.

The resolver mostly waits for the index, so it is asked for more stacks at a time than there are
cores.  Answers are kept (:mod:`trl_compat.stacks.environments.refusals`); a lock is made later,
when its stack is due, because that may need a build.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field

from rich.console import Console

from trl_compat.errors import BadInput
from trl_compat.stacks.environments import EnvironmentFailed, Unavailable, Unresolvable, locks
from trl_compat.stacks.matrix import Stack

Tell = Callable[[str], None]


@dataclass
class Answers:
    """What became of the stacks that were asked about.

    Attributes:
        refused: the reason by stack.
        unavailable: what an index that did not answer said; empty if all did.
    """

    asked: int
    done: int = 0
    refused: dict[str, str] = field(default_factory=dict)
    unavailable: str = ""

    def __str__(self) -> str:
        """The state, as a line."""
        text = f"resolving: {self.done} of {self.asked} stacks"
        return f"{text}, {len(self.refused)} cannot be installed" if self.refused else text


def workers() -> int:
    """How many resolvers run at a time."""
    return 2 * (os.cpu_count() or 1)


def resolve(stacks: Mapping[str, Stack], names: Iterable[str], tell: Tell) -> Answers:
    """Finds out which of some stacks cannot be installed; a single one is left to its cells.

    Args:
        tell: is told the state after each answer, as a line.

    Raises:
        BadInput: the index stopped answering in between; the answers so far are kept.
    """
    unknown = [name for name in dict.fromkeys(names) if not _known(stacks[name])]
    answers = Answers(asked=len(unknown))
    if len(unknown) < 2:
        return answers
    with ThreadPoolExecutor(workers()) as pool:
        waiting = {pool.submit(_ask, stacks[name]): name for name in unknown}
        try:
            while waiting and not answers.unavailable:
                finished, _ = wait(waiting, return_when=FIRST_COMPLETED)
                for future in finished:
                    _note(answers, waiting.pop(future), future)
                    tell(str(answers))
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
    if answers.unavailable and (answers.done or any(stacks[name].grid for name in unknown)):
        raise BadInput(
            f"the package index does not answer ({answers.done} of {answers.asked} stacks are "
            f"resolved, and kept): {answers.unavailable}; check the network and run the same "
            "command again"
        )
    return answers


def show(
    stacks: Mapping[str, Stack], names: Iterable[str], console: Console, *, quiet: bool
) -> Answers:
    """Like :func:`resolve`; a terminal shows the progress in one line, and what came of it stays.

    Raises:
        BadInput: see :func:`resolve`.
    """
    with contextlib.ExitStack() as shown:
        tell: Tell = lambda line: None  # noqa: E731
        if console.is_terminal and not quiet:
            status = shown.enter_context(console.status("resolving"))
            tell = status.update
        answers = resolve(stacks, names, tell)
    if answers.done and not quiet:
        console.print(f"resolved {answers.done} stacks; {len(answers.refused)} cannot be installed")
    return answers


def _known(stack: Stack) -> bool:
    """Whether a stack is resolved, or refused, already; or cannot be asked about here."""
    if stack.lock is not None:
        return True
    try:
        interpreter = locks.interpreter_of(stack)
    except EnvironmentFailed:
        return True
    return locks.answered(stack, interpreter) is not None


def _ask(stack: Stack) -> None:
    locks.ask(stack, locks.interpreter_of(stack))


def _note(answers: Answers, name: str, future: Future[None]) -> None:
    try:
        future.result()
    except Unresolvable as error:
        answers.refused[name] = str(error)
    except Unavailable as error:
        answers.unavailable = str(error)
        return
    except EnvironmentFailed:
        pass  # the stack's cells say it
    answers.done += 1
