"""Another number of workers, of servers, or of both, for a running run.

1. On a cluster, places are reserved for the new processes. If there is no room for them in time,
   the run stays as it is.
2. The coordinator takes a checkpoint. The training continues meanwhile.
3. When it is complete, all processes end, and as many as are wanted begin again from it, as after a
   loss or with `--resume`: in the same run and folder.

What was done after the checkpoint is done again, so no gradient is lost, and none counts twice.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from outpace.config.experiment import Experiment
from outpace.engine.losses import LEAST_PEERS, SET_CHECKPOINT
from outpace.engine.scripts.anew import REMEDY, begin_anew
from outpace.errors import ConfigError, RunError
from outpace.real.coordinator.roles import RunState
from outpace.real.coordinator.saving.checkpoints import Checkpoints
from outpace.record.requests import Answer, Requests, ScaleRequest
from outpace.support.units import Time, nanoseconds
from outpace.support.words import plural
from outpace.sync.messages import server_name, worker_name

if TYPE_CHECKING:
    from outpace.real.coordinator.coordinator import Coordinator


_MOST: Final = 1000
_LOOK_S: Final = 0.5  # between two looks for places


class Told(Protocol):
    """Is told of the end of a change."""

    def __call__(self, *, is_done: bool, text: str) -> None: ...


class BeginWith(RunError):
    """All processes are to begin again from the last checkpoint, in other numbers.

    Attributes:
        workers, servers: the numbers; None: as they are.
        without: names of roles whose places on a cluster are given back.
        since: when it was asked for (the kernel's time).
        told: called when they train; None: no one waits.
    """

    def __init__(
        self,
        text: str,
        workers: int | None,
        servers: int | None = None,
        without: Collection[str] = (),
        since: Time = 0,
        told: Told | None = None,
    ) -> None:
        super().__init__(text)
        self.workers, self.servers, self.without = workers, servers, without
        self.since, self.told = since, told


class Scaling:
    """The requests for other numbers in one attempt of a run.

    Args:
        checkpoints: those of the run; None: none are taken.
    """

    def __init__(self, run: RunState, checkpoints: Checkpoints | None) -> None:
        self._run, self._experiment, self._kernel = run, run.experiment, run.kernel
        self._checkpoints = checkpoints
        self.is_under_way = False

    def scale(
        self,
        servers: int | None = None,
        workers: int | None = None,
        told: Told | None = None,
        without: Collection[str] = (),
    ) -> str:
        """Begin again with other numbers after the next checkpoint; return that, in words.

        Args:
            servers, workers: None: as they are.
            told: called when the run trains with them, or stays as it is.
            without: names of roles whose places on a cluster are given back.

        Raises:
            ConfigError: if that cannot be, or no number is given.
        """
        self._require_possible(servers, workers)
        experiment = self._experiment
        is_same = workers in (None, experiment.workers) and servers in (None, experiment.servers)
        is_complete = not any(map(self._run.members.has_left, range(experiment.workers)))
        if is_same and is_complete and not without:
            kinds = {"worker": workers, "server": servers}
            has = " and ".join(plural(n, kind) for kind, n in kinds.items() if n is not None)
            said = f"the run has {has} already"
            if told is not None:
                told(is_done=True, text=said)
        else:
            numbers = _numbers(experiment, workers, servers)
            said = f"after its next checkpoint the run begins again with {numbers}"
            self._begin(servers, workers, told, without)
        self._run.log(said)
        return said

    def _begin(
        self,
        servers: int | None,
        workers: int | None,
        told: Told | None,
        without: Collection[str],
    ) -> None:
        """Begin again with these numbers, once there are places for them and a checkpoint."""
        self.is_under_way = True
        since, checkpoints = self._kernel.now, self._checkpoints
        assert checkpoints is not None
        numbers = _numbers(self._experiment, workers, servers)

        def begin(number: int) -> None:
            said = f"the run begins again with {numbers}, from checkpoint {number}"
            raise BeginWith(said, workers, servers, without, since, told)

        def save() -> None:
            checkpoints.when_complete = begin
            checkpoints.save_now()

        if more := self._new_roles(servers, workers):
            self._kernel.spawn(self._when_placed(more, save, told), "places", daemon=True)
        else:
            save()

    def _new_roles(self, servers: int | None, workers: int | None) -> list[str]:
        """Return the names of the roles that the run does not have now."""
        experiment = self._experiment
        more_servers = range(experiment.servers, servers or 0)
        more_workers = range(experiment.workers, workers or 0)
        return [*map(server_name, more_servers), *map(worker_name, more_workers)]

    async def _when_placed(
        self, names: Sequence[str], save: Callable[[], None], told: Told | None
    ) -> None:
        """Call `save` once there are places for these roles, or give them up after a time."""
        launcher, kernel = self._run.launcher, self._kernel
        until = kernel.now + nanoseconds(launcher.room_s)
        launcher.reserve(names)
        while why := launcher.no_room(names):
            if kernel.now >= until:
                for name in names:
                    launcher.release(name)
                self.is_under_way = False
                said = f"the run stays as it was: {why}"
                self._run.log(said)
                if told is not None:
                    told(is_done=False, text=said)
                return
            await kernel.sleep(_LOOK_S)
        save()

    def _require_possible(self, servers: int | None, workers: int | None) -> None:
        run, key = self._run, "servers" if workers is None else "workers"
        if servers is None and workers is None:
            raise ConfigError("scale: give a number of workers, of servers, or both")
        if not run.members.rules.can_begin_again:
            number = workers or self._experiment.workers
            raise ConfigError(
                f"{key}: no process can be started: the workers of this run are started elsewhere; "
                f"with checkpoint, outpace serve --resume RUN --connect FILE --workers {number} can"
            )
        if not run.members.has_begun:
            raise ConfigError(f"{key}: the training has not begun; try again in a moment")
        if run.is_ending:
            raise ConfigError(f"{key}: the run is about to end")
        assert run.plan is not None
        numbers = {"servers": servers, "workers": workers}
        for key, wanted in numbers.items():
            if wanted is not None and (why := self._why_not(key, wanted, run.plan.layers)):
                raise ConfigError(f"{key}: {why}")

    def _why_not(self, key: str, number: int, layers: Sequence[int]) -> str:
        experiment, checkpoints = self._experiment, self._checkpoints
        if not 1 <= number <= _MOST:
            return f"must be from 1 to {_MOST}, not {number}"
        if experiment.peers is not None and key == "servers":
            return f"{experiment.peers.kind} has no servers"
        if experiment.peers is not None and number < LEAST_PEERS:
            return f"{experiment.peers.kind} needs at least {LEAST_PEERS} workers"
        if checkpoints is None:
            return (
                "the run has no checkpoint from which it could begin again with another number: "
                f"{SET_CHECKPOINT}"
            )
        if self.is_under_way:
            return "the run is about to begin again with other numbers; try again when it has"
        if checkpoints.unrepeatable:
            anew = begin_anew(sorted(checkpoints.unrepeatable), "of the checkpoint")
            return f"{anew}: {REMEDY}"
        if key == "servers" and number > sum(layers):
            return f"{plural(number, 'server')} cannot share {plural(sum(layers), 'parameter')}"
        try:
            if key == "servers":
                changed = replace(experiment, servers=number)
            else:
                changed = replace(experiment, workers=number)
            changed.slices(layers)
        except (ConfigError, ValueError) as error:
            return f"the configuration does not fit {plural(number, key[:-1])}: {error}"
        return ""


def _numbers(experiment: Experiment, workers: int | None, servers: int | None) -> str:
    """Return the numbers with which a run begins again, in words."""
    found = [plural(workers or experiment.workers, "worker")]
    if experiment.peers is None:
        found.append(plural(servers or experiment.servers, "server"))
    return " and ".join(found)


_EVERY_S: Final = 0.25


class ScaleRequests:
    """Has the kernel of the coordinator look for requests in the folder of its run."""

    def __init__(self, folder: Path) -> None:
        self._requests = Requests(folder)

    def attach(self, coordinator: Coordinator) -> None:
        """Take requests for this attempt, until its kernel is closed."""
        coordinator.kernel.spawn(self._keep(coordinator), "requests to scale", daemon=True)

    async def _keep(self, coordinator: Coordinator) -> None:
        while True:
            for name, request in self._requests.take():
                self._do(coordinator, name, request)
            await coordinator.kernel.sleep(_EVERY_S)

    def _do(self, coordinator: Coordinator, name: str, request: ScaleRequest) -> None:
        told = partial(self._told, name)
        try:
            coordinator.scaling.scale(request.servers, request.workers, told)
        except ConfigError as error:
            told(is_done=False, text=str(error))

    def _told(self, name: str, *, is_done: bool, text: str) -> None:
        self._requests.answer(name, Answer(is_done, text))
