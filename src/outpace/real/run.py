"""A run on real processes: an `Engine`."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
import torch

from outpace.blocks.block import Block
from outpace.config.experiment import Experiment
from outpace.engine.control import ControlFunction
from outpace.engine.cut_offs import cut_off_rule
from outpace.engine.keeper import CheckpointKeeper
from outpace.engine.losses import cost_of_a_loss, rules_about_losses
from outpace.engine.output import print_line
from outpace.engine.resuming import ResumePoint
from outpace.engine.scripts.anew import REMEDY, begin_anew
from outpace.engine.scripts.model import with_batch_size
from outpace.engine.status import StatusFile
from outpace.errors import ConfigError, OutpaceError, RunError
from outpace.predict.interface import Model, Rule
from outpace.real.attempt import Attempt
from outpace.real.control import RealControl
from outpace.real.coordinator.coordinator import EARLY_END_S, Coordinator
from outpace.real.coordinator.fitting import BackgroundFitting
from outpace.real.coordinator.run_state import machines_of
from outpace.real.coordinator.scaling import ScaleRequests
from outpace.real.coordinator.setting import Saving, Setting
from outpace.real.coordinator.status import StatusOfRun
from outpace.real.coordinator.survival import AttemptOver, with_numbers
from outpace.real.elastic.watching import Elastic, NodeWatcher
from outpace.real.net.addresses import LOOPBACK
from outpace.real.net.sparse_log import Log
from outpace.real.process.launcher import Launcher, MakeLauncher
from outpace.real.process.local import LocalLauncher
from outpace.real.process.rendezvous import Outside
from outpace.real.quality import Quality
from outpace.real.training import Training, script_used
from outpace.record.checkpoints import Index
from outpace.record.event_log import LAUNCHER, EventLog
from outpace.record.timing import Timing
from outpace.record.totals import Totals
from outpace.record.trace import Trace
from outpace.support.processes.cores import CoresUsed
from outpace.support.processes.room import require_room
from outpace.support.processes.signals import checkpoint_on_signal
from outpace.support.units import Time, seconds
from outpace.sync.membership.decide import Membership
from outpace.sync.membership.events import AttemptFailed, BeginAgain, CheckpointComplete, EndRun
from outpace.sync.messages import SCHEDULER, server_name, worker_name

LEASE_S: Final = 10.0


class RealRun:
    """An engine with the coordinator in this process, and servers and workers in others.

    Args:
        lease_s: seconds of silence after which a connection counts as lost.
        watch: called once all processes are started.
        control: called with a `Control` when the training starts.
        launcher: makes the launcher of the processes; None: they are started on this machine.
        address: address of this machine at which processes reach the coordinator; `outside` has its
            own.
        warn: called with a line for each warning about the training; None: `log`.
        files: the folder for files of scripts, for the workers of `outside`.
        timing: takes the times of messages and computations; None: they are dropped.
        resume: the point at which the run is resumed; None: a new run.
        keeper: stores checkpoints; None: none are taken.
        status: records and writes how far the run is, and has the log of events; None: nothing is
            written.
        elastic: adapts the processes to the nodes of a cluster; None: their number is fixed.

    Raises:
        ConfigError: if the addresses or the connect file of `outside` cannot be used.
    """

    def __init__(
        self,
        experiment: Experiment,
        training: Training,
        trace: Trace,
        log: Log,
        *,
        lease_s: float = LEASE_S,
        outside: Outside | None = None,
        watch: Callable[[RealRun], None] | None = None,
        control: ControlFunction | None = None,
        launcher: MakeLauncher | None = None,
        address: str = LOOPBACK,
        warn: Log | None = None,
        files: Path | None = None,
        timing: Timing | None = None,
        resume: ResumePoint | None = None,
        keeper: CheckpointKeeper | None = None,
        status: StatusFile | None = None,
        elastic: Elastic | None = None,
    ) -> None:
        if outside is not None:
            outside.require_reachable()
            if outside.remove_left_over():
                log(f"--connect {outside.connect}: was of a run that was killed; it is replaced")
        elsewhere = 0 if outside is None else experiment.workers
        if launcher is not None:
            elsewhere = experiment.workers + experiment.servers_in_run
        here = experiment.servers_in_run + experiment.workers - elsewhere
        has_store = experiment.peers is not None or experiment.has_script
        require_room(here, elsewhere, 2 if has_store else 1)  # one connection to the store
        self._experiment, self._training, self._trace, self._log = experiment, training, trace, log
        self._watch, self._control, self._keeper = watch, control, keeper
        self._timing = Timing(lambda _: None) if timing is None else timing
        self._resume = resume
        self._present = experiment  # with the present numbers of workers and servers
        self._most_workers = experiment.workers  # number of workers at any time
        self.status = status or StatusFile(None, "run", experiment, EventLog())
        self.events = self.status.events
        self.events.write_rows(trace, trace)
        self._status = StatusOfRun(self.status, self.nodes)
        self._watcher = None if elastic is None else NodeWatcher(elastic, log, self.events)
        folder = self.status.folder
        self._requests = None if folder is None else ScaleRequests(folder, self._answer)
        self._quality = Quality(experiment, training, resume)
        self.metrics = self._quality.metrics
        self._origin: int | None = None  # origin of the time of the run, once it has begun
        self._acted_until: Time = -1 if resume is None else resume.now  # see `RealControl`
        self._closed = False
        # Only processes that this process has started can be distinguished from others.
        self._cores = CoresUsed() if outside is None and launcher is None else None
        self._processor: dict[str, Any] | None = None  # known when the processes have ended
        # The state of a script is lost with its process, except for the state in checkpoints.
        is_kept = keeper is not None or not experiment.has_script
        is_here = outside is None
        rules = rules_about_losses(
            experiment, training.join_s, can_start=is_here and is_kept, can_begin_again=is_here
        )
        self._outside, self._files = outside, files
        address = address if outside is None else outside.host
        self._setting = Setting(
            experiment=experiment,
            members=Membership(rules, [SCHEDULER]),
            launcher=launcher or partial(LocalLauncher, address=address),
            trace=trace,
            evaluate=self._quality.begin,
            log=log,
            lease_s=lease_s,
            on_output=self._show,
            events=self.events,
            on_start=self._has_begun,
            on_log=self._quality.log,
            on_answer=self._answer,
            address=address,
            warn=warn,
            timing=self._timing,
            saving=None if keeper is None else Saving(keeper, self._complete),
        )
        self._rule: Rule | None = None  # cuts iterations off; it observes all attempts
        self._fitting: BackgroundFitting | None = None  # of its model
        self._rule_workers = 0
        self._attempt = self._new_attempt()

    def _complete(self, taken: Index, saved: Mapping[int, Time]) -> None:
        """Add the data to a checkpoint that the processes with its parts do not know."""
        assert self._keeper is not None
        self._trace.flush()
        self._timing.hand_on()
        taken = msgspec.structs.replace(
            taken,
            layout=self._training.layout or self._quality.layout,
            recovery=self.events.recovery,
        )
        self._keeper.commit(taken, self._quality.metrics_until(taken, saved))
        self.coordinator.survival.tell(CheckpointComplete(taken.number))

    def _rule_for(self, experiment: Experiment) -> Rule | None:
        """Return the rule that decides when iterations are cut off; None if none are."""
        settings, log = experiment.cut_off, self._log
        if settings is None or experiment.workers == self._rule_workers:
            return self._rule
        self._rule_workers = experiment.workers
        self._end_fit()
        if settings.fitted_in_run:
            self._fitting = BackgroundFitting(settings.model, experiment.seed, settings.ordered)
        self._rule = cut_off_rule(
            experiment, settings, say=log, note=log, fitting=self._fitting, clock=time.perf_counter
        )
        return self._rule

    def _end_fit(self) -> None:
        if self._fitting is not None:
            self._fitting.close()

    def _new_attempt(self) -> Attempt:
        """Return an attempt with the present numbers of workers and servers."""
        experiment, join_s = self._present, self._training.join_s
        setting = replace(
            self._setting,
            experiment=experiment,
            resume=self._resume,
            join_s=join_s,
            rule=self._rule_for(experiment),
        )
        attempt = Attempt(setting, self._training, self._outside, self._files, self._origin)
        coordinator = attempt.coordinator
        self._quality.attach(coordinator)
        if self._resume is not None and coordinator.checkpoints is not None:
            coordinator.checkpoints.unrepeatable.update(self._resume.checkpoint.index.anew)
        return attempt

    @property
    def coordinator(self) -> Coordinator:
        return self._attempt.coordinator

    @property
    def launcher(self) -> Launcher:
        return self._attempt.launcher

    # -- Engine -----------------------------------------------------------------------

    @property
    def totals(self) -> Totals:
        return self.coordinator.state.totals

    @property
    def places(self) -> int:
        return self._most_workers

    def used_by_script(self) -> dict[str, Any] | None:
        reports = self.coordinator.reports
        first = self.coordinator.state.joined.get(self._attempt.workers[0])
        used = script_used(first.used) if first is not None and first.used else None
        return None if used is None else with_batch_size(used, reports.batch_size)

    def nodes(self) -> Mapping[str, str]:
        if self._outside is None:
            return self.launcher.nodes
        return machines_of(self.coordinator.state.joined)

    def files_written(self) -> Mapping[int, Collection[str]]:
        return self.coordinator.reports.files_written

    def run_time_model(self) -> Model | None:
        return None if self._fitting is None else self._fitting.model

    def times(self, host_s: float) -> dict[str, Any]:
        coordinator = self.coordinator
        now = 0 if self._resume is None else self._resume.now
        if coordinator.snapshots.final is not None:
            now = coordinator.snapshots.final[1].now
        elif coordinator.started or self._origin is not None:
            now = coordinator.clock.now
        processor = {} if self._processor is None else {"processor": self._processor}
        return {"wall_time_s": seconds(now), **processor}

    def run(self) -> None:
        if cost := cost_of_a_loss(self._experiment):
            self._log(cost)
        self._quality.start()
        with checkpoint_on_signal(self._save_now):
            self._train()
        self._quality.settle()
        self.totals.require_trained()

    def _train(self) -> None:
        """Carry out the run to its end, in as many attempts as necessary."""
        while True:
            self._attempt.start()
            started = [*self.coordinator.servers]
            started += self.coordinator.workers if self._outside is None else []
            self.events.add("launched", role=LAUNCHER, processes=len(started))
            for each in (self._status, self._requests, self._watcher):
                if each is not None:
                    each.attach(self.coordinator)
            if self._watch is not None:
                self._watch(self)
            try:
                self.coordinator.run()
                return
            except AttemptOver as over:
                for loss in over.order.lost:
                    known = {"why": str(over), "lost_ns": max(0, loss.since)}
                    self.events.add("lost", "warning", role=loss.name, **known)
                if isinstance(over.order, EndRun):
                    raise
                order, then = over.order, over.then
            except (RunError, ConfigError) as error:
                failed = AttemptFailed(str(error))
                (first, *then) = self._setting.members.take(failed, self.coordinator.kernel.now)
                if not isinstance(first, BeginAgain):
                    raise
                order = first
            self._begin_again(order)
            self.coordinator.survival.carry_out(then)

    def _begin_again(self, order: BeginAgain) -> None:
        """End all processes and start the decided number of processes again."""
        before, coordinator = self._present, self.coordinator
        if order.lost and not order.checkpoint:
            self._status.restarting(coordinator, f"all processes to begin again: {order.why}")
            self._end_attempt(before)
            lost = self.events.recovery.updates_lost
            self.events.add("begin-anew", "warning", cause=order.why, updates_lost=lost)
            self._log(f"{order.why}; nothing was trained yet, so all processes are started again")
            self._attempt = self._new_attempt()
            return
        lost_at = 0 if self._resume is None else self._resume.now
        if coordinator.started or self._origin is not None:
            lost_at = min((loss.since for loss in order.lost), default=0)
        servers = order.servers or before.servers  # 0 without servers
        present = replace(before, workers=order.workers, servers=servers)
        if not order.lost:
            self._log(order.why)
            why = "all processes to begin again with other numbers"
        else:
            why = f"all processes to begin again: {order.why}"
        point = self._go_back(present, why)
        names, scripts = {loss.name for loss in order.lost}, point.checkpoint.index.anew
        self.events.add(
            "group-restart" if names else "scaling",
            "warning" if names else "info",
            cause=order.why,
            lost=[n for n in (*coordinator.servers, *coordinator.workers) if n in names],
            lost_ns=lost_at,
            number=point.number,
            time_ns=point.now,
            first=min(point.first),
            updates_lost=point.recovery.updates_lost,
            anew=len(scripts),
        )
        if names:
            has = with_numbers((before.workers, before.servers_in_run), present)
            where = f"{point.checkpoint.name} ({_iterations(point)})"
            self._log(f"{order.why}; the run continues from {where}{has}")
            if scripts:
                self._log(f"{begin_anew(scripts, 'of the checkpoint')}: {REMEDY}")
        self._attempt = self._new_attempt()

    def _end_attempt(self, present: Experiment) -> None:
        """End all processes; keep the cluster places of those that begin again."""
        attempt = self._attempt
        if attempt.coordinator.started:
            self._acted_until = attempt.coordinator.kernel.now
        attempt.kill()
        attempt.stop()
        attempt.close()
        roles = {*map(worker_name, range(present.workers))}
        roles |= {*map(server_name, range(present.servers_in_run))}
        attempt.launcher.keep_only(roles)

    def _go_back(self, present: Experiment, why: str) -> ResumePoint:
        """End all processes; return the last checkpoint, with which the run begins again.

        Args:
            why: text that says what the run waits for, for its status.
        """
        coordinator, keeper, before = self.coordinator, self._keeper, self._resume
        if coordinator.started:
            self._origin = coordinator.clock.origin
        self._status.restarting(coordinator, why)
        self._end_attempt(present)
        self._timing.forget()
        if coordinator.started or before is None:
            assert keeper is not None
            checkpoint = keeper.go_back()
        else:
            checkpoint = before.checkpoint
        point = ResumePoint.of(checkpoint, present)
        self._present, self._resume = present, point
        self._quality.goes_back(point)
        return point

    def _has_begun(self) -> None:
        """Note that the time of the run has begun, and the processes are told to train."""
        coordinator, now = self.coordinator, self.coordinator.clock.now
        self._most_workers = max(self._most_workers, self._present.workers)
        self.events.add("training", time_ns=now)
        for at, server, policy in self._present.policies.later():
            told = partial(self._tell_policy, server_name(server), policy.kind)
            self.coordinator.kernel.call_at(max(at, now), told)
        if self._control is not None:
            RealControl(self._present, self.events, coordinator, self._acted_until).begin(
                self._control
            )

    def _tell_policy(self, name: str, kind: str, _: object) -> None:
        """Note that a server changes its policy now; it knows the configuration."""
        now = self.coordinator.clock.now
        self.events.add("policy", role=name, kind=kind, time_ns=now)

    def _answer(self, asker: str, text: str, is_done: bool) -> None:
        """Answer a request for other numbers of processes."""
        self.events.add("answer", asker=asker, text=text, is_done=is_done)
        if self._watcher is not None:
            self._watcher.answer(asker, text, is_done=is_done)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        # The error is already reported, or is Ctrl-C: keep the results that are available.
        try:
            with contextlib.suppress(OutpaceError):
                self.coordinator.wind_down()
        finally:
            self._attempt.stop()
            self._end_fit()
            self._quality.close(EARLY_END_S)
            self._processor = None if self._cores is None else self._cores.data()
            self._attempt.close()
            self._trace.flush()
            self._timing.flush()

    def parameters(self) -> Sequence[Block]:
        """Return the final parameters, or the last known ones if a server was lost."""
        return self._quality.parameters()

    def state_dict(self) -> dict[str, torch.Tensor]:
        return self._quality.state_dict()

    # ----------------------------------------------------------------------------------

    def _show(self, name: str, line: str, error: bool) -> None:
        """Print a line of a process, without its name if it is the only worker."""
        print_line("" if self._attempt.workers == [name] else name, line, error)

    def _save_now(self) -> None:
        """Take a checkpoint, because this process received the signal for it."""
        if self.coordinator.checkpoints is None:
            self._log("no checkpoint is taken: the run was started without checkpoint")
        else:
            self.coordinator.checkpoints.save_now()


def _iterations(point: ResumePoint) -> str:
    """Return a text about the iterations with which the workers continue."""
    first, last = min(point.first), max(point.first)
    return f"iteration {first}" if first == last else f"iterations {first} to {last}"
