"""Checks and stores the messages of processes to the coordinator, and makes the plan."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from outpace.blocks.block import Block, whole, whole_tensor
from outpace.config.experiment import Experiment
from outpace.engine.scripts.requirements import other_parameters
from outpace.engine.scripts.sameness import SameGradients, differing_settings
from outpace.errors import ConfigError
from outpace.real.collective.group import backend_for
from outpace.real.coordinator.checkpoints import Checkpoints
from outpace.real.coordinator.losses import Losses
from outpace.real.coordinator.run_state import RunState
from outpace.real.coordinator.survival import Survival
from outpace.real.coordinator.with_servers import WithServers
from outpace.real.coordinator.without_servers import WithoutServers
from outpace.real.net.block_frames import block_elements, head_in
from outpace.real.net.checkpoint_messages import MOST_KEPT
from outpace.real.net.messages import (
    Compared,
    Fetch,
    JoinRun,
    ModelBuffers,
    Plan,
    ProcessDone,
    Snapshot,
    TrainingDone,
)
from outpace.real.net.report_messages import (
    MOST_ROWS,
    MOST_TIMES,
    Notice,
    ProcessFailed,
    RowsReport,
    ScriptLog,
)
from outpace.record.event_log import Level
from outpace.record.timing import WIDTH, require_own
from outpace.record.trace import SCHEMA
from outpace.support.version import __version__
from outpace.sync.membership.events import WorkerTrained
from outpace.sync.messages import WireMessage, server_name, worker_name

_FIRST = worker_name(0)
_OF_WORKERS = (
    Compared,
    Fetch,
    ModelBuffers,
    ScriptLog,
    TrainingDone,
)


class Reports:
    """Handles all messages to the coordinator.

    first_gradients: compares the workers' first gradients. checkpoints: the checkpoints of the run;
    None: none are taken. announce: called with messages about the progress of a process.
    """

    def __init__(
        self,
        run: RunState,
        architecture: WithServers | WithoutServers,
        losses: Losses,
        survival: Survival,
        first_gradients: SameGradients,
        checkpoints: Checkpoints | None,
        announce: Callable[[str, WireMessage], None],
    ) -> None:
        self.buffers: Block | None = None  # the model buffers that worker 0 sent last
        self.files_written: dict[int, list[str]] = {}  # files by worker, written by its script
        self.batch_size: int | None = None  # batch size of worker 0's script, if it is known
        self._settings: dict[int, list[dict[str, Any]]] = {}  # settings that differ, by worker
        self._run, self._numbers = run, run.numbers
        self._listener, self._architecture, self._losses = run.listener, architecture, losses
        self._survival, self._first_gradients = survival, first_gradients
        self._checkpoints, self._announce = checkpoints, announce
        self._trace, self._timing = run.setting.trace, run.setting.timing
        self._events = run.setting.events
        self._warned: set[str] = set()

    def expected(self, name: str, message: WireMessage) -> tuple[str, int] | None:
        """Return dtype and elements of the block that may come with this message."""
        head = head_in(message)
        if head is None:
            return None
        size = head.elements
        if isinstance(message, RowsReport):
            is_trace = message.table == "trace"
            most = MOST_ROWS * len(SCHEMA) if is_trace else MOST_TIMES * WIDTH
            return ("int64", size) if size <= most else None
        if isinstance(message, ModelBuffers) and name == _FIRST and name in self._run.joined:
            # Buffers may grow until the end.
            return ("uint8", size) if size <= MOST_KEPT else None
        if isinstance(message, Snapshot) and self._run.plan is not None:
            source, part = self._architecture.source(message.shard)
            if name == source:
                dtype = self._run.plan.dtype
                return dtype, block_elements(dtype, self._run.plan.slices[part])
        return None if self._checkpoints is None else self._checkpoints.expected(name, message)

    def make_plan(
        self, experiment: Experiment, keys: Mapping[str, str], begin: Sequence[int] = ()
    ) -> Plan:
        """Return where the servers are and what all workers train, once all have joined.

        Args:
            keys: public keys of the processes.
            begin: the first iteration of each worker; empty: 0.

        Raises:
            ConfigError: if the workers do not train the same parameters, or if there are too few
                parameters for the servers.
        """
        joined = self._run.joined
        servers = [server_name(server) for server in range(experiment.servers_in_run)]
        workers = [worker_name(worker) for worker in range(experiment.workers)]
        first = joined[workers[0]]
        for name in workers[1:]:
            join = joined[name]
            if join.layout != first.layout or join.layers != first.layers:
                raise other_parameters(name, join.layout, first.layout)
            if join.state != first.state:
                raise ConfigError(
                    f"{name}'s optimizer begins with another state than worker-0's: load the same "
                    "checkpoint into the optimizer of every worker, before the training begins"
                )
        slices = experiment.slices(first.layers)
        self._run.plan = Plan(
            endpoints=[joined[name].endpoint for name in servers],
            keys=[keys[name] for name in servers],
            layers=first.layers,
            bounds=[0, *(part.stop for part in slices)],
            dtype=first.dtype,
            digest=first.digest,
            share=any(joined[name].digest != first.digest for name in workers),
            backend=backend_for([joined[name].gpu for name in workers]),
            first=list(begin),
        )
        return self._run.plan

    def take(self, name: str, message: WireMessage) -> None:
        if isinstance(message, _OF_WORKERS) and name not in self._numbers:
            self._listener.refuse(name, f"only workers send {type(message).__name__}")
        elif isinstance(message, RowsReport):
            self._add_rows(name, message)
        elif isinstance(message, Notice) and message.warns:
            if message.text not in self._warned:
                self._warned.add(message.text)
                self._run.setting.log_warning(message.text)
        elif isinstance(message, Notice):
            self._run.log(f"{name}: {message.text}" if name not in message.text else message.text)
        elif isinstance(message, ProcessFailed):
            level: Level = "warning" if message.lost else "error"
            self._events.add("failed", level, role=name, text=message.text, kind=message.kind)
            self._losses.process_failed(name, message)
        elif isinstance(message, Compared) and message.what == "gradient":
            self._first_gradients.add(name, message.iteration, message.text)
        elif isinstance(message, Compared):
            self._take_settings(name, message)
        elif isinstance(message, ScriptLog):
            if message.files:
                self.files_written[self._numbers[name]] = message.files
            self._run.setting.on_log(self._numbers[name], message)
        elif self._checkpoints is not None and self._checkpoints.take(name, message):
            pass
        elif not self._architecture.take(name, message):
            self._take_announcement(name, message)
            self._announce(name, message)

    def _take_settings(self, name: str, message: Compared) -> None:
        """Warn once if two workers have reported different settings."""
        try:
            settings = json.loads(message.text)
        except (ValueError, RecursionError):
            settings = None
        if not isinstance(settings, list) or not all(isinstance(each, dict) for each in settings):
            self._listener.refuse(name, "its settings are no list of parameter groups")
            return
        self._settings[self._numbers[name]] = settings
        if len(self._settings) == 2:
            (one, mine), (other, theirs) = sorted(self._settings.items())
            warning = differing_settings(one, mine, other, theirs, message.iteration)
            self._run.setting.log_warning(warning)

    def _take_announcement(self, name: str, message: WireMessage) -> None:
        if isinstance(message, JoinRun):
            self._take_join(name, message)
        elif isinstance(message, TrainingDone):
            self._survival.tell(WorkerTrained(self._numbers[name]))
            if name == _FIRST:
                self.batch_size = message.batch_size or None
            if self._checkpoints is not None:
                self._checkpoints.left(name, ended=message.ended, pushed=message.pushed)
            self._first_gradients.has_left(name)
        elif isinstance(message, ProcessDone):
            self._events.add("finished", role=name)
            self._losses.process_finished(name)
            self._listener.send(name, message)
        elif isinstance(message, Snapshot):
            message.block = whole(message.block)  # copied into memory of this process
            self._architecture.snapshots.add(message)
        elif isinstance(message, Fetch):
            self._architecture.snapshots.fetch(name)
        elif isinstance(message, ModelBuffers):
            self.buffers = whole(message.block)

    def _take_join(self, name: str, message: JoinRun) -> None:
        if name in self._run.joined and not self._survival.may_join(name):
            self._listener.refuse(name, "it joined twice")
        elif message.outpace != __version__:
            text = (
                f"{name} runs Outpace {message.outpace}, the coordinator {__version__}: "
                "install the same version on all machines"
            )
            raise ConfigError(text)
        else:
            self._run.joined[name] = message
            self._events.add("joined", role=name, process=message.pid)

    def _add_rows(self, name: str, message: RowsReport) -> None:
        is_trace = message.table == "trace"
        try:
            if message.block is not None:
                width = len(SCHEMA) if is_trace else WIDTH
                rows = whole_tensor(message.block)
                table: np.ndarray[Any, Any] = rows.numpy().reshape(-1, width)
                if not is_trace:
                    require_own(table, name)
                (self._trace if is_trace else self._timing).add(table)
        except ValueError as error:
            what = "trace" if is_trace else "times"
            self._listener.refuse(name, f"its {what} cannot be read: {error}")
            return
        self._run.totals_of[name] = message.totals
        self._run.reported_at[name] = self._run.kernel.now
