"""The nodes of a run: machines that an endpoint joins, or network namespaces of this one."""

from __future__ import annotations

import socket
from dataclasses import dataclass

import psutil

from trl_compat.errors import BadInput

PORT = 29500


@dataclass(frozen=True)
class Network:
    """The nodes, and which of them are here.

    Attributes:
        nodes: how many there are, with ``ranks`` on each.
        endpoint: address and port of the first node; None if all are namespaces of this machine.
        node: the number of this machine, from 0; the first one has the endpoint.
    """

    nodes: int
    ranks: int
    endpoint: tuple[str, int] | None = None
    node: int = 0

    @property
    def here(self) -> range:
        """The nodes whose agents this command starts."""
        return range(self.nodes) if self.endpoint is None else range(self.node, self.node + 1)

    @property
    def world_size(self) -> int:
        """Of all nodes."""
        return self.nodes * self.ranks


def endpoint_of(text: str) -> tuple[str, int]:
    """``HOST`` or ``HOST:PORT`` as address and port.

    Raises:
        BadInput: it is neither, or no host of that name is known.
    """
    host, _, port = text.partition(":")
    if not host or not (port or str(PORT)).isdecimal() or not 0 < int(port or PORT) < 65000:
        raise BadInput(f"--endpoint {text}: HOST or HOST:PORT of the first node is expected")
    try:
        return socket.gethostbyname(host), int(port or PORT)
    except OSError as error:
        raise BadInput(f"--endpoint {text}: {host} cannot be resolved ({error})") from None


def address_towards(host: str) -> str:
    """The address of this machine on its way to another; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        try:
            any_socket.connect((host, 9))
        except OSError as error:
            raise BadInput(f"--endpoint {host}: there is no way to it ({error})") from None
        return str(any_socket.getsockname()[0])


def interface_of(address: str) -> str:
    """The network interface that has an address.

    Raises:
        BadInput: none of this machine has.
    """
    for name, found in psutil.net_if_addrs().items():
        if any(one.address == address for one in found):
            return name
    raise BadInput(f"no network interface of this machine has the address {address}")
