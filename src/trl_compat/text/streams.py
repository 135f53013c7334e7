"""Output streams that survive the end of their reader.

``| head`` closes its end of a pipe, or a terminal is closed while cells run: the command continues,
its output is discarded, and its exit code does not change.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from typing_extensions import Buffer

# Nobody reads any more: the other end of a pipe is closed, the terminal has gone.
GONE = (errno.EPIPE, errno.EIO)


class _Outliving(io.FileIO):
    """Writes to a descriptor for as long as somebody reads, then to nowhere."""

    def write(self, data: Buffer, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            # Whatever is still in a buffer goes to nowhere, too.
            nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
            os.dup2(nowhere, self.fileno(), inheritable=True)
            os.close(nowhere)
            if error.errno not in GONE:
                raise
            return memoryview(data).nbytes


def outliving(descriptor: int, *, encoding: str = "utf-8", lines: bool = False) -> TextIO:
    """A text stream on a descriptor, which stays open when the stream is closed.

    Args:
        lines: whether each line is written at once.
    """
    return io.TextIOWrapper(
        io.BufferedWriter(_Outliving(descriptor, "w", closefd=False)),
        encoding=encoding,
        errors="backslashreplace",  # what an encoding lacks is no reason to fail
        line_buffering=lines,
    )


def outlive_readers() -> None:
    """Makes the standard streams outlive those who read them."""
    sys.stdout = _replaced(sys.stdout)
    sys.stderr = _replaced(sys.stderr)


def _replaced(stream: TextIO | None) -> TextIO:
    if stream is None:  # whoever started us has closed it
        return open(os.devnull, "w", encoding="utf-8")
    stream.flush()
    descriptor = stream.fileno()
    lines = stream.isatty() or descriptor == 2
    return outliving(descriptor, encoding=stream.encoding, lines=lines)
