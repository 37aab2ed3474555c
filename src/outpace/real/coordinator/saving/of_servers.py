"""The checkpoints of a run with servers: the shards, and what the scripts of the workers keep.

The servers save their shards (`real.node.saving.saver`): all at the same clock, or each at once.

The worker of a script saves what the script keeps (`real.node.script.keeping`). Where all servers
are saved at the same clock, scripts are saved when they begin the iteration of that number.
Otherwise they are asked first, and save what they keep when they begin their next iteration. Then
the servers are asked, which have all that was pushed before: what a script keeps is never ahead of
what the servers have of its worker, and after a resume it computes again what it is behind.

Where workers pass over iterations, it is not known how many a script would have to compute again.
There the scripts are asked once all servers are saved: what a script keeps is never behind.

When a run begins, all are asked before they are told to start, so all are saved where it begins.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import torch

from outpace.blocks.block import Block
from outpace.engine.resuming import kept_in
from outpace.engine.servers import is_exact, leaves_behind
from outpace.errors import ProtocolError
from outpace.real.coordinator.saving.base import LONGEST_S, SCRIPTS, Answer, Checkpoints
from outpace.real.coordinator.saving.kept_scripts import KeptScripts
from outpace.real.coordinator.saving.open import Open, SavedRun
from outpace.real.net.checkpoint_messages import (
    MOST_CLOCK,
    MOST_REPORTED,
    CheckpointPart,
    ScriptState,
    TakeCheckpoint,
    VersionReached,
)
from outpace.record.checkpoints import ShardRecord, Taken
from outpace.record.checkpoints.shards import SUFFIX
from outpace.record.totals import Totals
from outpace.support.units import Time, nanoseconds
from outpace.sync.checkpoint.planner import CutPlanner, GiveUp, Order
from outpace.sync.checkpoint.state import lacking
from outpace.sync.messages import WireMessage, server_name, worker_name

_AHEAD: Final = 2  # clocks, so that no server is past the chosen one
_TIMELY: Final = 2  # iterations in which a script must have been saved


@dataclass(eq=False)
class _Scripts:
    """The scripts in the open checkpoint.

    done: iterations of each worker when it was asked for. orders: by worker. told: workers that
    have got theirs; the others do once all servers are saved. answered: those that have taken their
    states. held: orders to servers, which get theirs once all scripts have taken their states.
    servers_asked_at: the time at which they did.
    """

    done: Mapping[int, int] = field(default_factory=dict)
    orders: dict[int, TakeCheckpoint] = field(default_factory=dict)
    told: set[int] = field(default_factory=set)
    answered: set[int] = field(default_factory=set)
    held: list[Order] = field(default_factory=list)
    servers_asked_at: Time | None = None


class CheckpointsOfServers(Checkpoints):
    """The checkpoints of a run with servers; see the head of the file.

    Args:
        kept: is told what scripts keep; None: no process takes the place of another one.
    """

    def __init__(self, run: SavedRun, kept: KeptScripts | None = None) -> None:
        experiment, resume = run.experiment, run.resume
        self._servers = {server_name(n): n for n in range(experiment.servers)}
        planner = CutPlanner(len(self._servers), is_exact(experiment), run.saving.keeper.last)
        # The planner numbers scripts as shards, after those of all possible servers.
        scripts = range(experiment.workers if experiment.has_script else 0)
        self._workers = {worker_name(worker): worker for worker in scripts}
        behind = {name: SCRIPTS + worker for name, worker in self._workers.items()}
        super().__init__(run, self._servers | behind, planner, "servers")
        self._planner.join(behind.values())
        self._is_elsewhere = experiment.is_elsewhere
        self._passes_over = leaves_behind(experiment)  # workers may pass over iterations
        self._others = [0] * experiment.workers  # iterations before its first that it did not do
        if resume is not None:
            done = resume.totals.iterations
            self._others = [n - done.get(worker, 0) for worker, n in enumerate(resume.first)]
        self._kept = kept
        self._scripts = _Scripts()
        self._ended: set[int] = set()  # workers whose scripts have come to their end
        self._gone: set[int] = set()  # all that take no more part in the training
        self._last: dict[int, int] = {}  # of these but lost ones: the last iteration pushed

    def relax(self) -> None:
        super().relax()
        self._passes_over = True

    def _target(self, clock: int) -> int:
        return min(max(clock, *self._iterations().values(), 0), MOST_CLOCK) + _AHEAD

    def _iterations(self) -> dict[int, int]:
        """Return how many iterations each worker has reported."""
        totals = Totals()
        for reported in self._totals_of.values():
            totals.add(reported)
        return totals.iterations

    def _sees_folder(self, process: int) -> bool:
        return super()._sees_folder(process) and not (process >= SCRIPTS and self._is_elsewhere)

    def _require(self, present: Open, process: int, part: CheckpointPart) -> None:
        record, files = part.shard, [each.file for each in part.parts]
        if process >= SCRIPTS:
            if files != [kept_in(process - SCRIPTS)] or record or part.own:
                raise ProtocolError("it did not save what its script keeps, or more than that")
            return
        if record is None or record.shard != process or files != [record.file] or part.kept_at:
            raise ProtocolError(f"it saved another shard than {process}, or sent no file of it")
        if len(record.watermarks) != len(self._others):
            raise ProtocolError(f"it saved the progress of {len(record.watermarks)} workers")

    def _files(self, present: Open, process: int) -> Collection[str]:
        if process >= SCRIPTS:
            return {kept_in(process - SCRIPTS)}
        return {server_name(process) + SUFFIX}

    # -- workers -------------------------------------------------------------------

    def left(self, name: str, *, ended: bool, pushed: int = 0) -> None:
        worker = self._workers.get(name)
        if worker is None or worker in self._gone or self._stops:
            return  # or it was told to stop where it is, and its script has not come to its end
        self._gone.add(worker)
        self._last[worker] = pushed - 1
        if ended:
            self._ended.add(worker)
        present, scripts = self._open, self._scripts
        if present is None or worker not in scripts.orders or not self._lacks(present, worker):
            return
        if worker in scripts.answered:
            self._begin_anew(present, self._planner.abandon())  # its file does not come any more
            return
        del scripts.orders[worker]
        scripts.told.discard(worker)
        if self._planner.saved(present.number, SCRIPTS + worker):
            self._has_all_parts(present)
        self._ask_servers(present)

    def began(self, worker: int) -> None:
        """Another process has taken the place of a worker: ask it for what its script keeps."""
        present, scripts = self._open, self._scripts
        if present is None or worker not in scripts.told or not self._lacks(present, worker):
            return
        if worker in scripts.answered:
            self._begin_anew(present, self._planner.abandon())
        else:
            self._listener.send(worker_name(worker), scripts.orders[worker])

    def _lacks(self, present: Open, worker: int) -> bool:
        """True if the file of this worker's script is missing."""
        return SCRIPTS + worker not in present.parts

    # -- messages ------------------------------------------------------------------

    def expected(self, name: str, message: WireMessage) -> tuple[str, int] | None:
        if isinstance(message, ScriptState) and name in self._workers:
            size = message.block.elements
            return ("uint8", size) if size <= MOST_REPORTED else None
        return super().expected(name, message)

    def take(self, name: str, message: WireMessage, block: Block | None = None) -> bool:
        if not isinstance(message, ScriptState):
            return super().take(name, message, block)
        if name not in self._workers:
            self._listener.refuse(name, "only the workers of scripts send what scripts keep")
        elif self._kept is not None and isinstance(block, torch.Tensor):
            self._kept.sent(self._workers[name], block, message.done)
        return True

    def _number(self, name: str, message: Answer) -> int:
        if isinstance(message, VersionReached) and name in self._workers:
            raise ProtocolError("only servers count the updates")
        return super()._number(name, message)

    def _fetch(self, present: Open, process: int, message: CheckpointPart) -> None:
        self._require_told(process)
        super()._fetch(present, process, message)
        self._has_answered(present, process)

    def _take_part(self, present: Open, process: int, message: CheckpointPart) -> None:
        self._require_told(process)
        super()._take_part(present, process, message)
        if self._open is not present:
            return  # it is taken again
        part = present.parts[process]
        if process >= SCRIPTS and part.is_complete and self._kept is not None:
            self._kept.saved(process - SCRIPTS, part.iteration)
        if len(shards_in(present)) == len(self._servers):
            for worker in self._scripts.orders.keys() - self._scripts.told:
                self._tell_worker(worker)
        self._has_answered(present, process)

    def _require_told(self, process: int) -> None:
        if process >= SCRIPTS and process - SCRIPTS not in self._scripts.told:
            raise ProtocolError("it was not asked for what its script keeps")

    def _has_answered(self, present: Open, process: int) -> None:
        """Note that a process has taken its state."""
        if process >= SCRIPTS:
            self._scripts.answered.add(process - SCRIPTS)
            self._ask_servers(present)

    def _has_all_parts(self, present: Open) -> None:
        """Complete the checkpoint; without the end of a script it is taken again."""
        last = {n: each for n, each in self._last.items() if self._lacks(present, n)}
        if lacking(shards_in(present), last):
            self._begin_anew(present, self._planner.abandon())
        else:
            super()._has_all_parts(present)

    def _missing(self, present: Open) -> list[str]:
        """Return who ought to have saved; a script may compute for long in two iterations."""
        scripts = self._scripts
        done, asked_at = self._iterations(), scripts.servers_asked_at
        has_waited = asked_at is None or self._kernel.now - asked_at >= nanoseconds(LONGEST_S)
        missing = []
        if has_waited and not scripts.held:
            missing = [name for name, n in self._servers.items() if n not in present.parts]
        for worker in sorted(scripts.told):
            is_late = done.get(worker, 0) - scripts.done.get(worker, 0) >= _TIMELY
            if self._lacks(present, worker) and (is_late or worker in scripts.answered):
                missing.append(worker_name(worker))
        return missing

    # -- from the order to the complete checkpoint -------------------------------------

    def _order(self, orders: Sequence[Order]) -> None:
        if orders:
            self._scripts = _Scripts(self._iterations())
        super()._order(orders)
        if self._open is not None and self._scripts.held:
            self._look_later(self._open)
            self._ask_servers(self._open)

    def _ask(self, order: Order, folder: Path) -> None:
        worker, present, scripts = order.shard - SCRIPTS, self._open, self._scripts
        assert present is not None
        # At the start all are asked before any begins, so a script is saved at its first iteration,
        # and the servers before the first push.
        at_once = order.clock is not None or present.at_start
        if worker in self._gone:
            self._planner.saved(order.number, order.shard)
        elif worker >= 0:
            where = self._named(folder, order.shard)
            scripts.orders[worker] = TakeCheckpoint(order.number, order.clock, where)
            if at_once or not self._passes_over:
                self._tell_worker(worker)
        elif self._workers and not (at_once or self._passes_over):
            scripts.held.append(order)
        else:
            self._ask_server(order, folder)

    def _tell_worker(self, worker: int) -> None:
        self._scripts.told.add(worker)
        self._listener.send(worker_name(worker), self._scripts.orders[worker])

    def _ask_server(self, order: Order, folder: Path) -> None:
        where = self._named(folder, order.shard)
        self._tell(order.shard, TakeCheckpoint(order.number, order.clock, where))

    def _ask_servers(self, present: Open) -> None:
        """Have the servers saved that wait for the scripts, if all of these are saved."""
        scripts = self._scripts
        if self._open is not present or scripts.orders.keys() - scripts.answered:
            return
        held, scripts.held = scripts.held, []
        for order in held:
            scripts.servers_asked_at = self._kernel.now
            self._ask_server(order, present.folder)

    def _give_up(self, present: Open, orders: Sequence[GiveUp], why: str = "") -> None:
        told = {SCRIPTS + worker for worker in self._scripts.told}
        orders = [each for each in orders if each.shard < SCRIPTS or each.shard in told]
        super()._give_up(present, orders, why)

    def _taken(self, present: Open) -> Taken:
        assert self._plan is not None
        parts = [part for _, part in sorted(present.parts.items())]
        servers = parts[: len(self._servers)]
        scripts = {worker for worker in self._workers.values() if not self._lacks(present, worker)}
        records, totals = shards_in(present), self._totals(present)
        for worker, others in enumerate(self._others):
            # What workers have reported may be a little older or newer than the checkpoint.
            most = 1 + max(record.watermarks[worker] for record in records) - others
            reported_count = totals.iterations.get(worker, 0)
            totals.iterations[worker] = min(reported_count, most) if self._passes_over else most
        return Taken(
            number=present.number,
            now=0 if present.at_start else max(part.now for part in servers),
            updates=records[0].version,
            parts=tuple(file for part in parts for file in part.parts),
            shards=records,
            totals=totals,
            bounds=tuple(self._plan.bounds),
            layers=tuple(self._plan.layers),
            of_script=bool(self._workers),
            ended=tuple(sorted(self._ended - scripts)),
            anew=tuple(sorted(self.unrepeatable & scripts)),
        )

    def _sums(self, present: Open, name: str, reported: Totals) -> Totals:
        if name in self._workers and self._scripts.servers_asked_at is not None:
            return reported  # it went on until then
        return super()._sums(present, name, reported)


def shards_in(present: Open) -> tuple[ShardRecord, ...]:
    """Return the records of the servers' shards that are saved."""
    parts = sorted(present.parts.items())
    return tuple(part.shard for _, part in parts if part.shard is not None)
