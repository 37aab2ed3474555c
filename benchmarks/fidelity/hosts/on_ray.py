"""A Ray cluster with a node on each host, and runs on it by `outpace run --launcher ray`."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from benchmarks.fidelity.hosts import relay
from benchmarks.fidelity.hosts.launcher import Hosts

from outpace.errors import ConfigError, RunError
from outpace.experiment.results import Result

_PORT: Final = 6379
_STORE_BYTES: Final = 80 << 20  # Ray's object store of a node, which is not used
_START_S: Final = 240.0
_RUN_S: Final = 3600.0  # some minutes are usual
_LOOK_S: Final = 0.5
_STARTED: Final = "Ray runtime started"
_ENTER: Final = "nsenter"
_LOCATION: Final = "RAY_TMPDIR"


@dataclass(frozen=True)
class RayOnHosts:
    """A Ray cluster whose first node, without a role, is on the last host.

    A node has a processor for each worker, and a "GPU" for each server, so that Ray places each
    role on a host for roles of its kind.
    """

    hosts: Hosts
    of_roles: Mapping[str, int]
    variables: Mapping[str, Mapping[str, str]]
    folder: str
    token: str
    _started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def address(self) -> str:
        return f"{list(self.hosts.namespaces)[-1]}:{_PORT}"

    def start(self) -> None:
        """Start all nodes, one after the other. Raises RunError."""
        last = len(self.hosts.namespaces) - 1
        self._node(last, ["--head", f"--port={_PORT}", "--include-dashboard=false"], {})
        for host in sorted(set(self.of_roles.values())):
            roles = [role for role, place in self.of_roles.items() if place == host]
            variables = {k: v for role in roles for k, v in self.variables.get(role, {}).items()}
            self._node(host, [f"--address={self.address}"], variables)

    def _node(self, host: int, options: list[str], variables: Mapping[str, str]) -> None:
        kinds = Counter(role.partition("-")[0] for role, at in self.of_roles.items() if at == host)
        address = list(self.hosts.namespaces)[host]
        command = [
            *("ray", "start", "--block", *options, f"--node-ip-address={address}"),
            *(f"--num-cpus={kinds['worker']}", f"--num-gpus={kinds['server']}"),
            f"--object-store-memory={_STORE_BYTES}",
        ]
        said = Path(self.folder) / f"node-{host}.txt"
        with said.open("wb") as output:
            process = subprocess.Popen(
                self._on(host, [sys.executable, "-m", "ray.scripts.scripts", *command[1:]]),
                env=self._environment | dict(variables),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        self._started.append(process)
        deadline = time.monotonic() + _START_S
        while _STARTED not in (text := said.read_text("utf-8", "replace")):
            if process.poll() is not None or time.monotonic() > deadline:
                lines = text.strip().splitlines() or ["it said nothing"]
                raise RunError(f"no node of Ray could be started at {address}: {lines[-1]}")
            time.sleep(_LOOK_S)

    def run(self, experiment: Mapping[str, Any], out: Path) -> Result:
        """Run the command on the first node, as a user does. Raises RunError."""
        launcher = {
            "kind": "ray",
            "address": self.address,
            "resources": {"worker": {"cpu": 1}, "server": {"cpu": 0, "gpu": 1}},
            "wait_s": _START_S,
        }
        out.parent.mkdir(parents=True, exist_ok=True)
        file = out.with_suffix(".yaml")
        file.write_text(json.dumps({**experiment, "launcher": launcher}), "utf-8")
        command = [sys.executable, "-m", "outpace", "run", str(file), "--out", str(out)]
        said = out.with_suffix(".txt")
        with said.open("wb") as output:
            process = subprocess.Popen(
                self._on(-1, command), env=self._environment, stdout=output, stderr=output
            )
            deadline = time.monotonic() + _RUN_S
            try:
                while process.poll() is None:
                    if time.monotonic() > deadline:
                        raise RunError(f"{' '.join(command[1:])}: no end within {_RUN_S:g} s")
                    if self.hosts.real_time and self._roles_go_first():
                        relay.go_first(process.pid)
                    time.sleep(_LOOK_S)
            finally:
                process.kill()
                process.wait()
        if process.returncode:
            lines = said.read_text("utf-8", "replace").strip().splitlines() or ["it said nothing"]
            raise RunError(f"{' '.join(command[1:])}: exit code {process.returncode}: {lines[-1]}")
        return Result.read(out)

    def _roles_go_first(self) -> bool:
        """Let the roles that are there go before other processes; True if there are any."""
        found = False
        for process in self._left():
            with contextlib.suppress(OSError):
                name = Path(f"/proc/{process}/comm").read_text().strip()
                if name in self.of_roles:
                    found = True
                    if os.sched_getscheduler(process) != os.SCHED_RR:
                        relay.go_first(process)
        return found

    def stop(self) -> None:
        """End all processes of the cluster, those that Ray has started included."""
        for process in self._started:
            process.terminate()
        deadline = time.monotonic() + 10.0
        for process in self._started:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.1, deadline - time.monotonic()))
        for process_id in self._left():
            with contextlib.suppress(ProcessLookupError):
                os.kill(process_id, signal.SIGKILL)
        for process in self._started:
            process.wait()

    def _left(self) -> list[int]:
        """Return the ids of processes whose environment is that of this cluster."""
        mine = f"{_LOCATION}={self.folder}".encode()
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    if mine in (entry / "environ").read_bytes().split(b"\0"):
                        found.append(int(entry.name))
        return found

    def _on(self, host: int, command: list[str]) -> list[str]:
        namespace = list(self.hosts.namespaces.values())[host]
        return [_ENTER, f"--net={namespace}", *command]

    @property
    def _environment(self) -> dict[str, str]:
        kept = {key: value for key, value in os.environ.items() if key != "RAY_ADDRESS"}
        return kept | {
            _LOCATION: self.folder,
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": self.token,
        }


@contextmanager
def ray_on(
    hosts: Hosts, of_roles: Mapping[str, int], variables: Mapping[str, Mapping[str, str]]
) -> Iterator[RayOnHosts]:
    """Start a Ray cluster on these hosts; it is gone when the block ends.

    Args:
        of_roles: The number of the host of each role; the last host has none.
        variables: Environment variables of roles, which all roles of a host get.

    Raises:
        ConfigError: if this machine lacks what is needed.
        RunError: if it does not start.
    """
    if shutil.which(_ENTER) is None:
        raise ConfigError(f"there is no command {_ENTER} (package util-linux)")
    if importlib.util.find_spec("ray") is None:
        raise ConfigError("Ray is not installed: pip install 'outpace[cluster]'")
    with ExitStack() as stack:
        folder = tempfile.mkdtemp(prefix="ray-")
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        os.mkdir(os.path.join(folder, "ray"))
        cluster = RayOnHosts(hosts, of_roles, variables, folder, secrets.token_hex(32))
        stack.callback(cluster.stop)
        cluster.start()
        yield cluster
