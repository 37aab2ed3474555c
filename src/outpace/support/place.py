"""The place of this process in a run, and the places of its samplers in their data.

The process that started this one sets its place.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

from outpace.errors import ConfigError
from outpace.support.notices import warn


class Sampling(Protocol):
    """A sampler that tells its place in the data, see `engine.scripts.sampler`."""

    epoch: int
    passes: int  # number of passes over the data that have begun, also in earlier processes
    is_asked: bool  # True once the script has read `epoch`

    def place(self) -> tuple[int, int]:
        """Return the epoch and the number of samples that the script had before this batch."""

    def leave_out(self, samples: int) -> None:
        """Leave out this many samples when the data are read next."""


class DataPlaces:
    """The samplers of a script, in the order in which it made them.

    Attributes:
        generators: the generators' states at the draw of the present batch, or at the end of the
            previous step.
        is_kept: True if checkpoints save the places.
    """

    def __init__(self) -> None:
        self._samplers: list[weakref.ref[Sampling]] = []
        self._restored: list[tuple[int, int]] = []
        self._passes: Sequence[int] = ()  # passes of each sampler; may have fewer entries
        self._begins: Callable[[], None] | None = None
        self.note: Callable[[], dict[str, Any]] | None = None
        self.generators: dict[str, Any] | None = None
        self.is_kept = False

    def add(self, sampler: Sampling) -> None:
        """Add a sampler that the script has made; restore its place if the run is resumed."""
        self._samplers.append(weakref.ref(sampler))
        if len(self._samplers) <= len(self._restored):
            self._put(sampler, len(self._samplers) - 1)

    @property
    def has_samplers(self) -> bool:
        """True if the script has made a sampler."""
        return bool(self._samplers)

    def places(self) -> list[tuple[int, int]]:
        """Return the place of each sampler, see `Sampling.place`."""
        alive = [each() for each in self._samplers]
        return [(0, 0) if each is None else each.place() for each in alive]

    def passes(self) -> list[int]:
        """Return how often the script has begun to read the data, for each sampler."""
        return [0 if (sampler := each()) is None else sampler.passes for each in self._samplers]

    @property
    def is_asked(self) -> bool:
        """True if the script has asked a sampler for the epoch to begin with."""
        return any((sampler := each()) is not None and sampler.is_asked for each in self._samplers)

    def restore(
        self,
        places: list[tuple[int, int]],
        begins: Callable[[], None],
        passes: Sequence[int] = (),
    ) -> None:
        """Restore the places of the samplers.

        Args:
            begins: called when data are read for the first time.
            passes: the result of `passes` at that time.
        """
        self._restored, self._begins, self._passes = places, begins, passes
        for number, known in enumerate(self._samplers[: len(places)]):
            if (sampler := known()) is not None:
                self._put(sampler, number)

    def begin(self) -> None:
        """When data are read for the first time, set the generators as they were."""
        if self._begins is not None:
            begins, self._begins = self._begins, None
            begins()

    def steps(self) -> None:
        """Note the generators' states after a step."""
        self.draws()

    def draws(self) -> None:
        """Note the generators' states at the draw of a batch."""
        if self.note is not None:
            self.generators = self.note()

    def _put(self, sampler: Sampling, number: int) -> None:
        sampler.epoch, samples = self._restored[number]
        if number < len(self._passes):  # the present pass is read to its end
            sampler.passes = max(0, self._passes[number] - 1)
        sampler.leave_out(samples)


@dataclass(slots=True)
class Place:
    """The place of this process in a run.

    Attributes:
        attach: makes the worker of a model and its optimizer; None: there is no run.
        worker: what `attach` or `follow` has made; an object of `outpace.real` or
            `outpace.simulation`.
        files: the folder for files of this worker's script, if the run has one.
        looked: True once this process has read its environment.
        collectives: makes the object that carries out the collectives of torch.distributed, see
            `outpace.engine.distributed`. Its arguments: seconds that a process waits for others,
            and the backend that the script names.
        follow: like `attach`, if the script's own collectives and optimizer do the training.
        begin: begins the run with a model in DistributedDataParallel and its optimizer; None: the
            script has called no `init_process_group`.
        is_distributed: True once the script has called `init_process_group`.
        has_attached: True once the script has called `attach`.
        data: the places of the script's samplers in their data.
        kept: further objects that the script gave to `attach`, by name.
        tell: warns the user. A warning that several workers of a run give is shown once.
        batch_sizes: batch sizes of the DataLoaders that have used `outpace.sampler`.
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
        """The batch size of the script's DataLoaders; None if there is none, or more than one."""
        return next(iter(self.batch_sizes)) if len(self.batch_sizes) == 1 else None


CONNECT: Final = "OUTPACE_CONNECT"  # variable with the file in which a worker finds its run
# variable with number, workers and folder, for processes that scripts start
PLACE: Final = "OUTPACE_PLACE"
ELSEWHERE: Final = "-"  # stands for the path of a script that workers started elsewhere run
HERE: Final = Place()


def tell_children() -> None:
    """Pass the place on to processes that this worker's script starts; see `look_at_parent`."""
    os.environ[PLACE] = json.dumps([HERE.number, HERE.workers, str(HERE.folder)])


def look_at_parent() -> bool:
    """Take over the place of the worker whose script started this process; False if there is none.

    A forked process has the place already. A process that multiprocessing starts as a new Python,
    such as the processes of a DataLoader with `spawn`, has the environment variables of the worker.
    Other programs that the script starts have these variables as well, but are not part of the
    worker.
    """
    if PLACE not in os.environ or multiprocessing.parent_process() is None:
        return False
    HERE.number, HERE.workers, files = json.loads(os.environ[PLACE])
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
    """Return the number of this process and of all processes; None if no launcher tells them."""
    for rank_key, size_key in _PLACES:
        if rank_key in os.environ and size_key in os.environ:
            try:
                return int(os.environ[rank_key]), int(os.environ[size_key])
            except ValueError:
                raise ConfigError(f"{rank_key} and {size_key} must be whole numbers") from None
    return None
