"""Blocks the network in Python, on machines whose kernel does not isolate cells from it.

This is weaker: C code is not blocked.  It is not used if the harness can give the cell its own
network (``trl_compat.machine.isolation``).
"""

from __future__ import annotations

import ipaddress
import os
import sys
from typing import Any

VARIABLE = "TRL_COMPAT_REFUSE_NETWORK"


def refuse_if_asked() -> None:
    """Makes every attempt to reach another host raise ``OSError``, if the harness asks for it."""
    if os.environ.get(VARIABLE) == "1":
        sys.addaudithook(_audit)


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "socket.connect" and isinstance(arguments[1], tuple):
        host = arguments[1][0]
    elif event == "socket.getaddrinfo":
        host = arguments[0]
    else:
        return
    if not _here(host):
        raise OSError(101, f"a cell may not reach {host}")


def _here(host: object) -> bool:
    name = host.decode() if isinstance(host, bytes) else host
    if name in (None, "", "localhost", os.uname().nodename):
        return True
    try:
        address = ipaddress.ip_address(str(name))
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified
