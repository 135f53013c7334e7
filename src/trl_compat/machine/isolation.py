"""What a stack's processes can reach, and how far this machine's kernel enforces it.

Cells run old releases with known vulnerabilities, and code that a pull request names.  Linux
isolates them without root if it allows user namespaces and has Landlock (from 5.13).  Missing parts
are skipped and reported: :func:`available` is part of every report, and :func:`.parts.missing`
gives a sentence for each part that is missing.  The keeper (:mod:`.keeper`), the process between
the harness and a stack, applies the isolation.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trl_compat.machine.keeper import NO_ROOM as NO_ROOM
from trl_compat.machine.keeper import Order
from trl_compat.machine.parts import Part
from trl_compat.runtime import confine

KEEPER = Path(__file__).with_name("keeper.py")
# Programs and libraries of the machine, and how they find each other; nothing of a user is there.
SYSTEM = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/gnu/store"),
    *("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives"),
    *("/etc/localtime", "/etc/OpenCL", "/etc/vulkan", "/etc/glvnd"),
)
# What the variables that a cell may have from the user name: folders of drivers and libraries.
LIBRARIES = ("LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH")


@dataclass(frozen=True)
class Reach:
    """The files that a stack's processes may reach, beside the machine's programs and libraries.

    Attributes:
        readable: files and folders, the stack's interpreter with its library among them.
        writable: folders.
        gpus: whether the GPUs are among it.
    """

    readable: tuple[Path, ...]
    writable: tuple[Path, ...]
    gpus: bool = False


@dataclass(frozen=True)
class Containment:
    """How the keeper works on this machine.

    Attributes:
        network, room, landlock, hostname: see :class:`trl_compat.machine.keeper.Order`.
    """

    network: bool = False
    room: bool = False
    landlock: bool = False
    hostname: str = "localhost"

    @property
    def parts(self) -> frozenset[Part]:
        """What is contained."""
        parts = {Part.NETWORK} if self.network else set()
        if self.room:
            parts |= {Part.PROCESSES, Part.READING, Part.WRITING, Part.MODES, Part.SOCKETS}
        if self.landlock:
            parts |= {Part.READING, Part.WRITING, Part.CELLS}
        return frozenset(parts)


def available() -> frozenset[str]:
    """What is contained on this machine, by name."""
    return frozenset(map(str, containment().parts))


@functools.cache
def containment() -> Containment:
    """The most that works as a whole on this machine, found by trying."""
    if sys.platform != "linux":
        return Containment()
    landlock = confine.landlock_version() > 0
    best = [Containment(network, room, landlock) for network, room in SPACES]
    return next((one for one in best if _works(one)), Containment())


def on_the_network(address: str) -> Containment:
    """The same for ranks that other machines must reach: the machine's network is theirs.

    They know no names of machines.  torch up to 2.4 tells the others the name of the machine in
    place of its address, so the address is its name.
    """
    return dataclasses.replace(containment(), network=False, hostname=address)


# Network and room, from best to least.
SPACES = ((True, True), (True, False), (False, False))
# A process that can do what ranks do, and nothing that it should not.
TRIAL = """
import os, socket, sys
room, guarded, outside = sys.argv[1] == "True", sys.argv[2] == "True", sys.argv[3]
server = socket.create_server(("127.0.0.1", 0))
socket.create_connection(server.getsockname(), 5).close()
open("inside", "w").close()
open("/dev/null", "w").close()
open("/proc/self/stat").close()
if room and os.getpid() != 2:
    sys.exit("not in its own namespace")
try:
    os.listdir(outside)
except OSError:
    pass
else:
    if room or guarded:
        sys.exit("it can read files outside its root")
"""


def _works(wanted: Containment) -> bool:
    with tempfile.TemporaryDirectory(prefix="trl-compat-trial-") as folder:
        inside, outside = Path(folder) / "inside", Path(folder) / "outside"
        for path in (inside, outside):
            path.mkdir()
        python = Path(sys.executable)
        script = [str(python), "-I", "-S", "-c", TRIAL]
        command = [*script, str(wanted.room), str(wanted.landlock), str(outside)]
        reach = Reach(readable=interpreter_files(python), writable=(inside,))
        try:
            done = subprocess.run(
                keep(command, cwd=inside, reach=reach, how=wanted),
                env={"HOME": str(inside)},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=False,
                timeout=20,
            )
        except (OSError, subprocess.TimeoutExpired):
            return False
        return done.returncode == 0


def keep(
    command: Sequence[str],
    *,
    cwd: Path,
    reach: Reach,
    how: Containment | None = None,
    report: int | None = None,
) -> list[str]:
    """The command that starts another one kept to itself.

    Args:
        command: with the full path of its program.
        cwd: where it starts, one of the folders that it may write to or below one.
        how: as :func:`containment` says by default.
        report: file descriptor for what was left of it (see :class:`.keeper.Order`).
    """
    how = containment() if how is None else how
    if sys.platform != "linux":
        return list(command)
    order = Order(
        command=list(command),
        cwd=str(cwd),
        parent=os.getpid(),
        network=how.network,
        room=how.room,
        landlock=how.landlock,
        readable=[str(path) for path in (*map(Path, SYSTEM), *_libraries(), *reach.readable)],
        writable=[str(path) for path in reach.writable],
        gpus=reach.gpus,
        report=report,
        hostname=how.hostname,
    )
    return [sys.executable, "-I", "-S", str(KEEPER), json.dumps(dataclasses.asdict(order))]


def interpreter_files(python: Path) -> tuple[Path, ...]:
    """What an interpreter needs to run: its environment's folder and the installation behind it.

    Both by every name on the way, as a virtual environment points to another by links.
    """
    named = [python]
    while named[-1].is_symlink() and len(named) < 40:
        named.append(named[-1].parent / os.readlink(named[-1]))
    named.append(Path(os.path.realpath(python)))
    prefixes = dict.fromkeys(path.parents[1] for path in named if len(path.parts) > 2)
    return tuple(path for prefix in prefixes for path in _of_prefix(prefix))


def _of_prefix(prefix: Path) -> list[Path]:
    """The folder of an installation; of one that holds the user's home as well, its own parts."""
    home = Path.home()
    if prefix != home and prefix not in home.parents:
        return [prefix]
    return [prefix / name for name in ("bin", "lib", "lib64", "pyvenv.cfg")]


def _libraries() -> list[Path]:
    """Folders of libraries that the variables name, unless they hold the user's home as well."""
    home = Path.home()
    named = [part for name in LIBRARIES for part in os.environ.get(name, "").split(os.pathsep)]
    paths = [Path(part) for part in named if part.startswith("/")]
    return [path for path in paths if path != home and path not in home.parents]
