"""The connect file, through which workers that Outpace did not start find their run.

`outpace serve` writes it, readable by its owner only, since it holds the workers' secret keys.
torchrun, SLURM or Kubernetes start the workers with OUTPACE_CONNECT set to its path, and give each
process its number in their own environment variables.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, Final, TypeAlias

import msgspec
import torch

from outpace.config.experiment import Experiment
from outpace.config.reading import experiment_from, to_plain
from outpace.engine.scripts.attached import AttachedScript
from outpace.errors import ConfigError
from outpace.real.net.transport import Keys, Session
from outpace.real.node.member import CoordinatorLink, report_failure
from outpace.real.script.attach import attached
from outpace.support.place import CONNECT, HERE
from outpace.support.words import plural
from outpace.sync.messages import worker_name
from outpace.tasks import Script

Place: TypeAlias = tuple[int, int]

_WAIT_S: Final = 60.0  # seconds to wait for the file
_LOOK_S: Final = 0.2


class Rendezvous(msgspec.Struct, forbid_unknown_fields=True):
    """The content of the file."""

    endpoint: str
    key: str
    session: Session  # with empty keys
    workers: dict[str, Keys]  # by name
    experiment: dict[str, Any]
    files: str = ""  # the folder for files of scripts; empty if the run has no folder
    store: str = ""  # see `CoordinatorLink`


@dataclass(frozen=True, slots=True)
class Outside:
    """Workers that Outpace does not start, perhaps on other machines.

    host: an address of this machine that the workers can reach. connect: the file written for the
    workers, with their keys.
    """

    host: str
    connect: Path

    def require_reachable(self) -> None:
        """Raise ConfigError if the address or the connect file cannot be used."""
        if self.connect.exists() and not self._is_left_over:
            raise ConfigError(
                f"--connect {self.connect}: the file exists, and another run may be using it; "
                "remove it if no run is, or name another file"
            )
        if not os.access(self.connect.parent, os.W_OK | os.X_OK):
            is_there = self.connect.parent.is_dir()
            problem = "cannot be written" if is_there else "does not exist"
            raise ConfigError(
                f"--connect {self.connect}: the folder {self.connect.parent} {problem}; "
                "make it, or name a file in another folder"
            )
        if self.host in ("0.0.0.0", "*", "::"):
            raise ConfigError(
                f"--host {self.host}: workers cannot connect to this address; "
                "give the address of this machine that they can reach"
            )

    def remove_left_over(self) -> bool:
        """Remove the connect file of a killed run; return False if there is none.

        Otherwise workers that find the file would wait for that run.
        """
        if not self._is_left_over:
            return False
        self.connect.unlink(missing_ok=True)
        return True

    @property
    def _is_left_over(self) -> bool:
        """True if the connect file was written by a process that no longer holds its lock."""
        try:
            with self.connect.open("r+b") as file:
                msgspec.json.decode(file.read(), type=Rendezvous)
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
        except (OSError, msgspec.DecodeError):  # the file may belong to another program
            return False


def write_rendezvous(
    path: Path,
    link: CoordinatorLink,
    keys: dict[str, Keys],
    plan: Experiment,
    files: Path | None = None,
) -> IO[bytes]:
    """Write the file for the workers of a run.

    Args:
        link: the link of any process of the run.
        keys: keys of each worker, by name.
        plan: the experiment of the run.
        files: the folder for files of scripts; None: the run has none.

    Returns:
        The open file, which is locked: while it is open the run is running (`Outside`).

    Raises:
        ConfigError: if the file cannot be written.
    """
    session = replace(link.session, keys=Keys("", ""))
    where = "" if files is None else str(files)
    described = to_plain(plan)
    content = Rendezvous(link.endpoint, link.key, session, keys, described, where, store=link.store)
    try:
        # A new file with mode 0600: a process that has the old one open sees no keys.
        handle, partial = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
        file = os.fdopen(handle, "wb")
        try:
            file.write(msgspec.json.encode(content))
            file.flush()
            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.replace(partial, path)
            return file
        except BaseException:
            file.close()
            os.unlink(partial)
            raise
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error}") from None


def run_worker(script: Path, arguments: Sequence[str], place: Place | None) -> Exception | None:
    """Run a script as a worker of the run in the file that OUTPACE_CONNECT names.

    Args:
        place: (number of this worker, number of workers); None if unknown.

    Returns:
        How the script or the run has failed; None if the script has ended without an error.

    Raises:
        ConfigError: if there is no such script or file, or if the file does not fit `place`.
    """
    from outpace.real.process.script import run_script

    if not script.is_file():
        raise ConfigError(f"{script} does not exist")
    path = os.environ.get(CONNECT)
    if not path:
        raise ConfigError(
            f"{CONNECT} is not set: start `outpace serve --connect FILE`, and set it to that file"
        )
    found, experiment, link, number = _joining(path, place)
    task = Script(path=str(script), arguments=tuple(arguments))
    files = Path(found.files) if found.files else None
    experiment = replace(experiment, task=task)
    return run_script(link, number, experiment, files=files, is_outside=True)


def join_from_file(path: str, place: Place | None) -> None:
    """Join the run of this file with this process, until the process ends.

    Args:
        place: (number of this worker, number of workers); None if unknown.

    Raises:
        ConfigError: if the file is not usable, or does not fit `place`.
    """
    found, experiment, link, number = _joining(path, place)

    def attach(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> AttachedScript:
        try:
            made = AttachedScript(attached(link, number, experiment, model, optimizer), experiment)
        except Exception as error:  # no other process reports it
            report_failure(link, error)
            raise
        # so it runs before ZeroMQ's handler, which was registered earlier
        atexit.register(_end_at_exit, made)
        return made

    HERE.attach, HERE.number, HERE.workers = attach, number, experiment.workers
    HERE.files = Path(found.files) / worker_name(number) if found.files else None


def _end_at_exit(worker: AttachedScript) -> None:
    """End a worker at the end of a Python process; note an unhandled error."""
    error = None if hasattr(sys, "ps1") else getattr(sys, "last_value", None)
    worker.end(error if isinstance(error, Exception) else None)


def _joining(path: str, place: Place | None) -> tuple[Rendezvous, Experiment, CoordinatorLink, int]:
    """Return the content of the file, the run, and this worker's link and number."""
    found = _read(Path(path))
    experiment = experiment_from(found.experiment, CONNECT)
    if place is None:
        raise ConfigError(
            f"{CONNECT}: the number of this worker is unknown: set OUTPACE_RANK and "
            "OUTPACE_WORLD_SIZE, or use torchrun"
        )
    number, total = place
    if total != experiment.workers or not 0 <= number < total:
        raise ConfigError(
            f"this is process {number} of {total}, but the run has "
            f"{plural(experiment.workers, 'worker')}: "
            f"start {plural(experiment.workers, 'process', 'processes')}"
        )
    # as in workers that Outpace starts, because it affects the rounding of sums
    if experiment.deterministic:
        torch.set_num_threads(1)
    name = worker_name(number)
    if name not in found.workers:
        raise ConfigError(f"{CONNECT}: there is no key of {name}")
    session = replace(found.session, keys=found.workers[name])
    link = CoordinatorLink(name, found.endpoint, found.key, session, found.store)
    return found, experiment, link, number


def _await(path: Path) -> None:
    """Wait for a file that does not exist yet, in an existing folder.

    A scheduler may start the workers at the same time as `outpace serve`, or before.
    """
    if path.exists() or not path.parent.is_dir():
        return
    print(  # noqa: T201
        f"outpace: {CONNECT}: {path} does not exist yet; waiting up to {_WAIT_S:.0f} s for "
        "`outpace serve` to write it",
        file=sys.stderr,
        flush=True,
    )
    until = time.monotonic() + _WAIT_S
    while not path.exists():
        if time.monotonic() >= until:
            raise ConfigError(
                f"{CONNECT}: `outpace serve` did not write {path} within {_WAIT_S:.0f} s: start "
                f"it with --connect {path}, on this machine or with a file that machines share"
            )
        time.sleep(_LOOK_S)


def _read(path: Path) -> Rendezvous:
    _await(path)
    try:
        return msgspec.json.decode(path.read_bytes(), type=Rendezvous)
    except OSError as error:
        raise ConfigError(f"{CONNECT}: cannot read {path}: {error}") from None
    except msgspec.DecodeError as error:
        raise ConfigError(f"{CONNECT}: {path} was not written by outpace serve: {error}") from None
