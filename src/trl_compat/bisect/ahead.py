"""Builds the environments of the next candidates in the background, while cells run.

Only what is cheap: a stack whose build of torch is in the cache, and only while the disk has room.
Whatever goes wrong here is said when the stack is really needed.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import threading
from collections.abc import Sequence

from packaging.version import Version

from trl_compat.bisect.around import Around
from trl_compat.errors import BadInput, HarnessError
from trl_compat.stacks.environments import EnvironmentFailed, build, cache

ROOM = 5 * 10**9  # bytes that stay free: nothing is built ahead below
TORCH = re.compile(r"torch-(?P<version>[^-]+)\.dist-info")
TORCH_BYTES = 8 * 10**9  # what a CUDA build of torch takes with its libraries, roughly


def held_builds() -> frozenset[str]:
    """The releases of torch of which an environment in the cache has a build."""
    places = (cache.root() / "environments").glob("*/lib/python*/site-packages/torch-*.dist-info")
    found = (TORCH.fullmatch(path.name) for path in places)
    return frozenset(Version(one["version"]).public for one in found if one)


def free_bytes() -> int:
    """What the disk of the cache has left."""
    place = cache.root()
    while not place.exists():
        place = place.parent
    return shutil.disk_usage(place).free


class Ahead:
    """A thread that builds what it is told, one at a time, the newest wish first."""

    def __init__(self) -> None:
        self._wanted: list[Around] = []
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="ahead", daemon=True)

    def __enter__(self) -> Ahead:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._closed, self._wanted = True, []
            self._changed.notify()
        # What it has begun is finished: an environment is whole or not there.
        with contextlib.suppress(KeyboardInterrupt):
            self._thread.join()

    def want(self, stacks: Sequence[Around]) -> None:
        """Replaces what is still to be built."""
        held = held_builds()
        with self._changed:
            self._wanted = [one for one in stacks if one.stack.torch in held and not one.conflict]
            self._changed.notify()

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._wanted and not self._closed:
                    self._changed.wait()
                if self._closed:
                    return
                one = self._wanted.pop(0)
            if free_bytes() < ROOM:
                continue
            with contextlib.suppress(EnvironmentFailed, BadInput, HarnessError, OSError):
                build.ensure(one.name, one.stack)
