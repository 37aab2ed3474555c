"""The place of this process in a run, if it has one, set by the process that started it."""

from __future__ import annotations

import json
import multiprocessing
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from outpace.errors import ConfigError
from outpace.support.data_places import DataPlaces
from outpace.support.notices import warn


@dataclass(slots=True)
class Place:
    """The place of this process in a run.

    Attributes:
        attach: makes the worker of a model and its optimizer; None: there is no run.
        worker: what `attach` or `follow` has made; an object of `outpace.real` or
            `outpace.simulation`.
        files: the folder for files of this worker's script, if the run has one.
        looked: True once the environment has been read.
        collectives: makes what carries out the collectives of torch.distributed, see
            `outpace.engine.distributed`. Its arguments: seconds that a process waits for others,
            and the backend that the script names.
        follow: like `attach`, if the script's own collectives and optimizer do the training.
        begin: begins the run with a model in DistributedDataParallel and its optimizer; None: the
            script has called no `init_process_group`.
        is_distributed: True once the script has called `init_process_group`.
        has_attached: True once the script has called `attach`.
        data: where the script is in its data.
        kept: further objects that the script gave to `attach`, by name.
        tell: warns the user. What several workers of a run say alike is shown once.
        batch_sizes: of the DataLoaders that have used `outpace.sampler`.
    """

    number: int = 0
    workers: int = 1
    attach: Callable[[Any, Any], Any] | None = None
    worker: Any = None
    files: Path | None = None
    looked: bool = False
    batch_sizes: set[int] = field(default_factory=set)
    collectives: Callable[[float, str | None], Any] | None = None
    follow: Callable[[Any, Any], Any] | None = None
    begin: Callable[[Any, Any], None] | None = None
    is_distributed: bool = False
    has_attached: bool = False
    data: DataPlaces = field(default_factory=DataPlaces)
    kept: dict[str, Any] = field(default_factory=dict)
    tell: Callable[[str], None] = warn

    @property
    def folder(self) -> Path:
        """The folder for files of this worker's script; see `outpace.output_dir`."""
        return self.files or Path.cwd() / "files" / f"worker-{self.number}"

    @property
    def batch_size(self) -> int | None:
        """The batch size of the script's DataLoaders; None if none was seen, or several sizes."""
        return next(iter(self.batch_sizes)) if len(self.batch_sizes) == 1 else None


CONNECT: Final = "OUTPACE_CONNECT"  # the file in which a worker finds its run
WORKER: Final = "OUTPACE_WORKER"  # number, workers and folder, for processes that scripts start
ELSEWHERE: Final = "-"  # in place of a script's path: workers started elsewhere run it
HERE: Final = Place()


def tell_children() -> None:
    """Let processes that this worker's script starts anew know the place: see `look_at_parent`."""
    os.environ[WORKER] = json.dumps([HERE.number, HERE.workers, str(HERE.folder)])


def look_at_parent() -> bool:
    """Take the place of the worker whose script has started this process; False if none has.

    A process that is forked has it already. One that multiprocessing starts anew, such as those of
    a DataLoader with `spawn`, has the variables of the worker; so have programs, which are others.
    """
    if WORKER not in os.environ or multiprocessing.parent_process() is None:
        return False
    HERE.number, HERE.workers, files = json.loads(os.environ[WORKER])
    HERE.files = Path(files)
    return True


# Environment variables with a worker's number and the number of workers: Outpace's, torchrun's,
# SLURM's, Open MPI's.
_PLACES: Final = (
    ("OUTPACE_RANK", "OUTPACE_WORLD_SIZE"),
    ("RANK", "WORLD_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
)


def place_of_process() -> tuple[int, int] | None:
    """Return this process's number and the number of processes; None if no launcher tells."""
    for rank_key, size_key in _PLACES:
        if rank_key in os.environ and size_key in os.environ:
            try:
                return int(os.environ[rank_key]), int(os.environ[size_key])
            except ValueError:
                raise ConfigError(f"{rank_key} and {size_key} must be whole numbers") from None
    return None
