"""Changes the number of workers, servers, or both, of a running run.

1. On a cluster, places are reserved for the new processes. If there is no room for them in time,
   the run does not change.
2. The coordinator takes a checkpoint. The training continues during this.
3. When the checkpoint is complete, all processes end, and the requested number of processes begin
   again from it, as after a loss or with `--resume`: in the same run and folder.

`sync.membership` does these steps; this file decides whether a request is possible.

Work after the checkpoint is repeated, so no gradient is lost, and none counts twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from outpace.engine.losses import SET_CHECKPOINT
from outpace.engine.scripts.anew import REMEDY, begin_anew
from outpace.errors import ConfigError
from outpace.real.coordinator.checkpoints import Checkpoints
from outpace.real.coordinator.run_state import RunState
from outpace.real.coordinator.survival import Survival
from outpace.record.requests import taken
from outpace.support.words import plural
from outpace.sync.membership.decide import in_words
from outpace.sync.membership.events import AskedToScale

if TYPE_CHECKING:
    from outpace.real.coordinator.coordinator import Coordinator

_MOST: Final = 1000
_EVERY_S: Final = 0.25  # seconds between two checks for requests


class Scaling:
    """The requests for other numbers in one attempt of a run.

    Args:
        checkpoints: the checkpoints of the run; None: none are taken.
    """

    def __init__(self, run: RunState, survival: Survival, checkpoints: Checkpoints | None) -> None:
        self._run, self._experiment, self._survival = run, run.experiment, survival
        self._checkpoints = checkpoints

    def scale(self, asked: AskedToScale) -> str:
        """Begin again with other numbers after the next checkpoint; return a text about it.

        The asker gets the answer once the run trains with the new numbers, or is known to keep the
        old ones.

        Raises:
            ConfigError: if the change is not possible, or no number is given.
        """
        run = self._run
        self._require_possible(asked.servers, asked.workers)
        asked = replace(asked, at=time.monotonic_ns())
        orders = run.members.take(asked, run.kernel.now)
        if (change := run.table.change) is None:
            kinds = {"worker": asked.workers, "server": asked.servers}
            has = " and ".join(plural(n, kind) for kind, n in kinds.items() if n is not None)
            said = f"the run has {has} already"
            self._survival.answer(asked.asker, said, is_done=True)
        else:
            numbers = in_words(change.workers, change.servers)
            said = f"after its next checkpoint the run begins again with {numbers}"
            run.log(said)
        self._survival.carry_out(orders)
        return said

    def _require_possible(self, servers: int | None, workers: int | None) -> None:
        run, key = self._run, "servers" if workers is None else "workers"
        if servers is None and workers is None:
            raise ConfigError("scale: give a number of workers, of servers, or both")
        if not run.table.rules.can_begin_again:
            number = workers or self._experiment.workers
            raise ConfigError(
                f"{key}: no process can be started: the workers of this run are started elsewhere; "
                f"with checkpoint, outpace serve --resume RUN --connect FILE --workers {number} can"
            )
        if not run.table.has_begun:
            raise ConfigError(f"{key}: the training has not begun; try again in a moment")
        if run.is_ending:
            raise ConfigError(f"{key}: the run is about to end")
        assert run.plan is not None
        numbers = {"servers": servers, "workers": workers}
        for key, wanted in numbers.items():
            if wanted is not None and (why := self._why_not(key, wanted, run.plan.layers)):
                raise ConfigError(f"{key}: {why}")

    def _why_not(self, key: str, number: int, layers: Sequence[int]) -> str:
        checkpoints, changed = self._checkpoints, dict[str, Any]({key: number})
        if not 1 <= number <= _MOST:
            return f"must be from 1 to {_MOST}, not {number}"
        if checkpoints is None:
            return (
                "the run has no checkpoint from which it could begin again with another number: "
                f"{SET_CHECKPOINT}"
            )
        if self._run.table.change is not None:
            return "the run is about to begin again with other numbers; try again when it has"
        if checkpoints.unrepeatable:
            anew = begin_anew(sorted(checkpoints.unrepeatable), "of the checkpoint")
            return f"{anew}: {REMEDY}"
        try:
            replace(self._experiment, **changed).slices(layers)
        except (ConfigError, ValueError) as error:
            return f"the configuration does not fit {plural(number, key[:-1])}: {error}"
        return ""


class ScaleRequests:
    """Makes the coordinator's kernel look for requests in the folder of its run.

    Args:
        answer: takes the name of a request, the answer, and whether the request was done.
    """

    def __init__(self, folder: Path, answer: Callable[[str, str, bool], None]) -> None:
        self._folder, self._answer = folder, answer

    def attach(self, coordinator: Coordinator) -> None:
        """Take requests for this attempt, until its kernel is closed."""
        coordinator.kernel.spawn(self._keep(coordinator), "requests to scale", daemon=True)

    async def _keep(self, coordinator: Coordinator) -> None:
        while True:
            for name, request in taken(self._folder):
                try:
                    if request is None:
                        raise ConfigError("the request cannot be read")
                    coordinator.scaling.scale(AskedToScale(request.workers, request.servers, name))
                except ConfigError as error:
                    self._answer(name, str(error), False)
            await coordinator.kernel.sleep(_EVERY_S)
