"""Gives the places of lost workers to new processes, in a run without servers.

The others go on without the lost worker. Its new process joins them in their next group, where one
of them hands it the common model (`real/collective/joining.py`). It goes on after the last
iteration of the lost process that is in this model, so no gradient is lost, and none counts twice.

Once no worker with a model is left, all processes begin again from the last checkpoint; without
one, the run ends as it does without the lost workers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final

import msgspec

from outpace.errors import RunError
from outpace.kernel import Alarm
from outpace.real.coordinator.averaging.hosted_store import HostedStore
from outpace.real.coordinator.recovery.losses import GroupLost
from outpace.real.coordinator.recovery.replacements import Replacements
from outpace.real.coordinator.recovery.run_around import RunAround
from outpace.real.coordinator.saving.of_workers import CheckpointsOfWorkers
from outpace.real.coordinator.without_servers import WithoutServers
from outpace.real.net.block_frames import head_of
from outpace.real.net.checkpoint_messages import ScriptState
from outpace.real.net.messages import Plan
from outpace.real.net.peer_messages import JoinedOthers
from outpace.record.totals import Totals
from outpace.support.units import nanoseconds
from outpace.sync.membership import Replace, Start
from outpace.sync.messages import SCHEDULER, WireMessage, worker_name

_MOST_S: Final = 86_400.0


class PeerReplacements(Replacements):
    """Brings lost workers back while the others go on.

    Args:
        checkpoints: those of the run; None: none are taken.
        can_begin_again: returns True if all processes can begin again from a checkpoint because
            this worker is lost.
    """

    def __init__(
        self,
        run: RunAround,
        architecture: WithoutServers,
        store: HostedStore,
        checkpoints: CheckpointsOfWorkers | None,
        can_begin_again: Callable[[str], bool],
    ) -> None:
        super().__init__(run, [SCHEDULER], [], self._reached, passes_over=False)
        strategy = run.experiment.peers
        assert strategy is not None
        self._limit_s = min(strategy.timeout_s, _MOST_S)
        self._architecture, self._store = architecture, store
        self._checkpoints, self._can_begin_again = checkpoints, can_begin_again
        self._states = None if checkpoints is None else checkpoints.states
        self._joining: dict[str, Alarm] = {}  # workers that are being given the model
        architecture.when_fewer = self._require_model

    # -- losses ------------------------------------------------------------------------

    def can_take(self, lost: Collection[str]) -> bool:
        """True if these workers can come back, because others have what they need."""
        architecture, losses = self._architecture, self._losses
        # Who ends itself would do so again; who has left has nothing to do any more.
        if any(architecture.has_left(name) or losses.has_exited(name) for name in lost):
            return False
        if not all(map(self._can_script, lost)):
            return False
        away = {name for name in self._numbers if self.comes_back(name)}
        return self._can_start and architecture.can_give({*lost, *away}, besides=lost)

    def _can_script(self, name: str) -> bool:
        """True if the script of this worker, if it has one, can go on with what it keeps."""
        if self._states is None:
            return True
        plan = self._reports.plan
        # If the scripts began with other models than worker 0's, a new process does not begin with
        # that model either, and needs one that another worker has kept.
        shares = plan is not None and plan.share
        kept = self._architecture.groups.keeps(name) if shares else True
        return kept and self._states.has(self._numbers[name])

    def comes_back(self, name: str) -> bool:
        """True if this worker is lost and its successor does not take part yet."""
        return name in self._joining or self._members.is_coming_back(self._numbers[name])

    def take_losses(self, lost: Mapping[str, RunError]) -> bool:
        if not super().take_losses(lost):
            return False
        for name in lost:
            self._joins_no_more(name)
            if self._checkpoints is not None and self.comes_back(name):
                self._checkpoints.comes_back(name)
            self._architecture.lose(name)
        return True

    def _joins_no_more(self, name: str) -> None:
        alarm = self._joining.pop(name, None)
        if alarm is not None:
            self._kernel.call_off(alarm)

    async def _reached(self, worker: int, _: bool) -> tuple[int, int]:
        """Return the last iteration that the lost process has reported, at least."""
        return self._reports.totals.iterations.get(worker, 0) - 1, 0

    def _replace(self, order: Replace) -> None:
        self._store.replace(worker_name(order.worker), order.generation)
        super()._replace(order)

    # -- messages ------------------------------------------------------------------------

    def take(self, name: str, message: WireMessage) -> bool:
        if isinstance(message, JoinedOthers):
            self._take_joined(name, message)
            return True
        return super().take(name, message)

    def _take_joined(self, name: str, message: JoinedOthers) -> None:
        if name not in self._joining:
            self._listener.refuse(name, "it joins the others, and was not asked to")
            return
        self._joins_no_more(name)
        worker = self._numbers[name]
        generation, first = self._members.generation(worker), message.first
        self._reports.has_joined(name, generation, worker, first, message.gradients)
        self._architecture.has_joined(name)
        if self._checkpoints is not None:
            self._checkpoints.joins(name)
        self._began(worker, first)
        if self._states is not None:
            self._send_state(name, first)

    def _send_state(self, name: str, first: int) -> None:
        """Send a new process what its script goes on with, at its first iteration or before."""
        assert self._states is not None
        worker = self._numbers[name]
        data = self._states.of(worker, first)
        if data is None:
            error = self._errors[worker]
            what = f"what its script kept before iteration {first} is not known any more"
            raise GroupLost(f"{error}, and {what}", [name])
        state = ScriptState(0, 0, Totals(), is_complete=True, block=head_of(data), done=first)
        self._listener.send(name, state, data)

    def _late_plan(self) -> Plan:
        plan = self._reports.plan
        assert plan is not None
        return msgspec.structs.replace(plan, late=True)

    def _is_ready(self, worker: int) -> None:
        name = worker_name(worker)
        due = self._kernel.now + nanoseconds(self._limit_s)
        self._joining[name] = self._kernel.set_alarm(due, lambda: self._too_late(name))
        if self._ending() is None:
            self._architecture.rejoin(name, self._members.generation(worker))
            self._require_model()

    def _too_late(self, name: str) -> None:
        error = self._errors[self._numbers[name]]
        raise RunError(
            f"{error}, and the process that takes its place was not given the model of the others "
            f"within {self._limit_s:g} s (sync.timeout_s)"
        )

    def _say_start(self, order: Start) -> None:
        error, generation = self._errors[order.worker], order.generation
        self._log(f"{error}; it is restarted (generation {generation}) while the others go on")

    # -- the others are gone -----------------------------------------------------------

    def _require_model(self) -> None:
        """Begin again, or go on without workers that come back, if none has a model for them."""
        away = [name for name in self._numbers if self.comes_back(name)]
        names = [name for name in away if not self._architecture.can_give([name])]
        if self._ending() is not None or not names:
            return
        errors = {name: self._errors[self._numbers[name]] for name in names}
        for name, error in errors.items():
            if self._can_begin_again(name):
                raise GroupLost(f"{error}, and all others had finished before it was back", names)
        for name, error in errors.items():
            self._log(f"{error}; the others have finished without it")
            if self._members.is_starting(self._numbers[name]):
                self._members.began(self._numbers[name])  # it is awaited no more
            self._joins_no_more(name)
            self._losses.goes_without(name)
            self._lost(name)
            self._architecture.lose(name)
