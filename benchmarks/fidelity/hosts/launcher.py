"""A launcher that starts each role on a separate host, which is a network namespace."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from benchmarks.fidelity.hosts import relay

from outpace.engine.output import OnOutput
from outpace.errors import ConfigError
from outpace.real.net.clock import RealClock
from outpace.real.process.launcher import MakeLauncher, OnExit, Role
from outpace.real.process.local import LocalLauncher

_NEEDS: Final = ("ip", "tc")


@dataclass(frozen=True)
class Link:
    """The connection of a host: bytes/s in each direction, and the delay of each way in s."""

    rate: float
    delay_s: float


@dataclass(frozen=True)
class Hosts:
    """Hosts that are running.

    Attributes:
        address: address at which the hosts reach this machine.
        namespaces: the file of each host's network namespace, by the host's address.
    """

    address: str
    namespaces: dict[str, str]

    def launcher(self, places: Mapping[str, int]) -> MakeLauncher:
        """Return a launcher for these hosts. places: the number of the host of each role."""
        return partial(HostsLauncher, hosts=self, places=places)


class HostsLauncher(LocalLauncher):
    """Starts each role on its host."""

    def __init__(
        self,
        clock: RealClock,
        on_exit: OnExit,
        on_output: OnOutput,
        *,
        hosts: Hosts,
        places: Mapping[str, int],
    ) -> None:
        super().__init__(clock, on_exit, on_output)
        self._namespaces = hosts.namespaces
        addresses = list(hosts.namespaces)
        self._addresses = {role: addresses[place] for role, place in places.items()}
        self.nodes = self._started = dict[str, str]()  # addresses, by role

    def start(self, role: Role) -> None:
        address = self._started[role.name] = self._addresses[role.name]
        arguments = role.target, role.at(address).arguments
        on_host = self._namespaces[address], *arguments
        super().start(Role(role.name, _on_host, on_host))


def _on_host(
    namespace: str,
    target: Callable[..., object],
    arguments: tuple[Any, ...],
) -> None:
    """Run a role on its host. Its threads are also on that host."""
    file = os.open(namespace, os.O_RDONLY)
    relay.enter(file)
    os.close(file)
    target(*arguments)


def _missing() -> str | None:
    """Return what this machine lacks for hosts; None if nothing."""
    if sys.platform != "linux":
        return "network namespaces exist on Linux only"
    if os.geteuid() != 0:
        return "network namespaces need root"
    for command in _NEEDS:
        if shutil.which(command) is None:
            return f"there is no command {command} (package iproute2)"
    if not Path("/dev/net/tun").exists():
        return "there is no /dev/net/tun"
    return None


@contextlib.contextmanager
def hosts(links: Sequence[Link]) -> Iterator[Hosts]:
    """Make a host for each link; the hosts are removed when the block or this process ends.

    Raises:
        ConfigError: if this machine lacks what is needed, or does not permit it.
    """
    if (why := _missing()) is not None:
        raise ConfigError(why)
    number = os.getpid()
    prefix = f"10.213.{number % 250}"
    asked = {
        "prefix": prefix,
        "name": f"op{number}",
        "hosts": [[link.rate, link.delay_s] for link in links],
    }
    command = [sys.executable, relay.__file__, json.dumps(asked)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            line = process.stdout.readline()
            if not line:
                wrong = process.stderr.read().strip().splitlines() or ["it ended"]
                raise ConfigError(f"no hosts can be made on this machine: {wrong[-1]}")
            namespaces = {
                f"{prefix}.{place + 2}": f"/proc/{process.pid}/fd/{file}"
                for place, file in enumerate(json.loads(line))
            }
            yield Hosts(f"{prefix}.1", namespaces)
        finally:
            process.kill()
