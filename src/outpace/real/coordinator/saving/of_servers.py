"""The checkpoints of a run with servers: the shards, and what the scripts of the workers keep.

The servers save their shards (`real.node.saving.saver`): all at the same clock, or each at once.

The worker of a script sends what the script keeps (`real.node.script.keeping`); it is written here,
since a worker may be on another machine. Where all servers are saved at the same clock, scripts
are saved when they begin the iteration of that number. Otherwise they are asked first, and save
what they keep when they begin their next iteration. Then the servers are asked, which have all that
was pushed before: what a script keeps is never ahead of what the servers have of its worker, and
after a resume it computes again what it is behind (`real.node.script.keeping`).

Where workers pass over iterations, it is not known how many a script would have to compute again.
There the scripts are asked once all servers are saved: what a script keeps is never behind.

When a run begins, all are asked before they are told to start, so all are saved where it begins.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import torch

from outpace.blocks.block import Block
from outpace.engine.resuming import kept_in
from outpace.engine.servers import is_exact, leaves_behind
from outpace.errors import ProtocolError
from outpace.real.coordinator.saving.base import LONGEST_S, Answer, Checkpoints
from outpace.real.coordinator.saving.open import Open, SavedRun
from outpace.real.net.checkpoint_messages import (
    MOST_CLOCK,
    MOST_KEPT,
    MOST_REPORTED,
    CheckpointPart,
    NotSaved,
    ScriptState,
    TakeCheckpoint,
)
from outpace.real.node.saving.saver import SavedPart
from outpace.record.checkpoints import Part, ShardRecord, Taken
from outpace.record.checkpoints.shards import SUFFIX
from outpace.record.checkpoints.tensors import checked, write_bytes
from outpace.record.totals import Totals
from outpace.support.units import Time, nanoseconds
from outpace.sync.checkpoint.planner import CutPlanner, GiveUp, Order
from outpace.sync.checkpoint.state import lacking
from outpace.sync.messages import WireMessage, server_name, worker_name

_AHEAD: Final = 2  # clocks, so that no server is past the chosen one
_SCRIPTS: Final = 1 << 31  # the number of worker 0's script among the shards
_TIMELY: Final = 2  # iterations in which a script must have been saved


@dataclass(eq=False)
class _Scripts:
    """The scripts in the open checkpoint.

    done: iterations of each worker when it was asked for. states, files: by worker; a state comes
    before its file is written. asked: orders to workers. later: workers that get theirs once all
    servers are saved. held: orders to servers, which get theirs once all scripts have sent their
    states. servers_asked_at: the time at which they did.
    """

    done: Mapping[int, int] = field(default_factory=dict)
    states: dict[int, ScriptState] = field(default_factory=dict)
    files: dict[int, Part] = field(default_factory=dict)
    asked: dict[int, TakeCheckpoint] = field(default_factory=dict)
    later: set[int] = field(default_factory=set)
    held: list[Order] = field(default_factory=list)
    servers_asked_at: Time | None = None


class CheckpointsOfServers(Checkpoints):
    """The checkpoints of a run with servers; see the head of the file.

    Args:
        sent: called with a worker, what its script keeps and the iteration to which that belongs,
            as often as it is sent.
    """

    def __init__(
        self,
        run: SavedRun,
        sent: Callable[[int, torch.Tensor, int], None] = lambda worker, data, iteration: None,
    ) -> None:
        experiment, resume = run.experiment, run.resume
        self._servers = {server_name(n): n for n in range(experiment.servers)}
        planner = CutPlanner(len(self._servers), is_exact(experiment), run.saving.keeper.last)
        super().__init__(run, self._servers, planner, "servers")
        self._is_script = experiment.has_script
        self._passes_over = leaves_behind(experiment)  # workers may pass over iterations
        self._others = [0] * experiment.workers  # iterations before its first that it did not do
        if resume is not None:
            done = resume.totals.iterations
            self._others = [n - done.get(worker, 0) for worker, n in enumerate(resume.first)]
        # For the planner the scripts are shards behind those of all servers that there may be.
        scripts = range(experiment.workers) if self._is_script else ()
        self._workers = {worker_name(worker): worker for worker in scripts}
        self._planner.join(_SCRIPTS + worker for worker in scripts)
        self._beside, self._sent = run.beside, sent
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

    def _require(self, present: Open, process: int, saved: SavedPart) -> None:
        record, files = saved.shard, [part.file for part in saved.parts]
        if record is None or record.shard != process or files != [record.file]:
            raise ProtocolError(f"it saved another shard than {process}, or sent no file of it")
        if len(record.watermarks) != len(self._others):
            raise ProtocolError(f"it saved the progress of {len(record.watermarks)} workers")

    def _files(self, present: Open, process: int) -> Collection[str]:
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
        if present is not None and worker in scripts.asked and worker not in scripts.states:
            self._has_all_of(present, worker)
            self._ask_servers(present)

    def began(self, worker: int) -> None:
        """Another process has taken the place of a worker: ask it for what its script keeps."""
        scripts = self._scripts
        if self._open is None or worker in scripts.later | scripts.states.keys():
            return
        if (order := scripts.asked.get(worker)) is not None:
            self._listener.send(worker_name(worker), order)

    # -- messages ------------------------------------------------------------------

    def expected(self, name: str, message: WireMessage) -> tuple[str, int] | None:
        if isinstance(message, ScriptState) and name in self._workers:
            size, most = message.block.elements, MOST_KEPT if message.number else MOST_REPORTED
            return ("uint8", size) if size <= most else None
        return super().expected(name, message)

    def take(self, name: str, message: WireMessage, block: Block | None = None) -> bool:
        if not isinstance(message, ScriptState):
            return super().take(name, message, block)
        try:
            self._take_state(name, message, block)
        except ProtocolError as error:
            self._listener.refuse(name, str(error))
        return True

    def _number(self, name: str, message: Answer) -> int:
        if isinstance(message, NotSaved) and name in self._workers:
            return _SCRIPTS + self._workers[name]
        return super()._number(name, message)

    def _take_state(self, name: str, message: ScriptState, block: Block | None) -> None:
        worker, present = self._workers.get(name), self._open
        if worker is None:
            raise ProtocolError("only the workers of scripts send what scripts keep")
        assert isinstance(block, torch.Tensor)
        is_late = present is not None and message.number < present.number  # it was given up
        if not message.number or present is None or is_late:
            if message.is_complete:
                self._sent(worker, block, message.done)
            return
        scripts = self._scripts
        is_asked = message.number == present.number and worker in scripts.asked
        if not is_asked or worker in scripts.later | scripts.states.keys():
            raise ProtocolError("it was not asked for what its script keeps")
        scripts.states[worker] = message
        present.times[worker] = message.now
        if message.is_complete:
            self._sent(worker, block, message.done)
            self.unrepeatable.discard(worker)
        else:
            self.unrepeatable.add(worker)
        write = partial(written_to, present.folder / kept_in(worker), block)
        self._beside(write, partial(self._has_written, present, worker))
        self._ask_servers(present)

    def _has_written(self, present: Open, worker: int, written: Part | OSError) -> None:
        if self._open is not present:
            return
        if isinstance(written, OSError):
            self._give_up(present, self._planner.abandon(), str(written))
            self._await_version()
            return
        self._scripts.files[worker] = written
        self._has_all_of(present, worker)

    def _has_all_of(self, present: Open, worker: int) -> None:
        """The checkpoint lacks nothing of this worker."""
        del self._scripts.asked[worker]
        self._scripts.later.discard(worker)
        if self._planner.saved(present.number, _SCRIPTS + worker):
            self._has_all_parts(present)

    def _take_part(self, present: Open, process: int, message: CheckpointPart) -> None:
        super()._take_part(present, process, message)
        if len(present.parts) == len(self._servers):
            scripts = self._scripts
            for worker in scripts.later:
                self._listener.send(worker_name(worker), scripts.asked[worker])
            scripts.later.clear()

    def _has_all_parts(self, present: Open) -> None:
        """Complete the checkpoint; without the end of a script it is taken again."""
        last = {n: each for n, each in self._last.items() if n not in self._scripts.files}
        if not lacking(shards_in(present), last):
            super()._has_all_parts(present)
            return
        self._is_due = True
        self._give_up(present, [])
        self._begin_if_due()

    def _missing(self, present: Open) -> list[str]:
        """Return who ought to have saved; a script may compute for long in two iterations."""
        scripts = self._scripts
        done, asked_at = self._iterations(), scripts.servers_asked_at
        has_waited = asked_at is None or self._kernel.now - asked_at >= nanoseconds(LONGEST_S)
        missing = super()._missing(present) if has_waited and not scripts.held else []
        for worker in scripts.asked.keys() - scripts.later:
            if done.get(worker, 0) - scripts.done.get(worker, 0) >= _TIMELY:
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
        worker, present, scripts = order.shard - _SCRIPTS, self._open, self._scripts
        assert present is not None
        # At the start all are asked before any begins, so a script is saved at its first iteration,
        # and the servers before the first push.
        at_once = order.clock is not None or present.at_start
        scripts_first = self._is_script and not (at_once or self._passes_over)
        if worker < 0 and scripts_first:
            scripts.held.append(order)
        elif worker < 0:
            self._ask_server(order, folder)
        elif worker in self._gone:
            self._planner.saved(order.number, order.shard)
        else:
            scripts.asked[worker] = TakeCheckpoint(order.number, order.clock)
            if self._passes_over and not at_once:
                scripts.later.add(worker)
            else:
                self._listener.send(worker_name(worker), scripts.asked[worker])

    def _ask_server(self, order: Order, folder: Path) -> None:
        self._tell(order.shard, TakeCheckpoint(order.number, order.clock, self._named(folder)))

    def _ask_servers(self, present: Open) -> None:
        """Have the servers saved that wait for the scripts, if all of these are saved."""
        scripts = self._scripts
        if self._open is not present or scripts.asked.keys() - scripts.states.keys():
            return
        held, scripts.held = scripts.held, []
        for order in held:
            scripts.servers_asked_at = self._kernel.now
            self._ask_server(order, present.folder)

    def _give_up(self, present: Open, orders: Sequence[GiveUp], why: str = "") -> None:
        scripts = self._scripts
        for worker in scripts.asked.keys() - scripts.later - scripts.states.keys():
            self._listener.send(worker_name(worker), NotSaved(present.number))
        shards = [order for order in orders if order.shard < _SCRIPTS]
        super()._give_up(present, shards, why)

    def _taken(self, present: Open) -> Taken:
        assert self._plan is not None
        parts, files = [part for _, part in sorted(present.parts.items())], self._scripts.files
        records, totals = shards_in(present), self._totals(present)
        for worker, others in enumerate(self._others):
            # What workers have reported may be a little older or newer than the checkpoint.
            most = 1 + max(record.watermarks[worker] for record in records) - others
            reported_count = totals.iterations.get(worker, 0)
            totals.iterations[worker] = min(reported_count, most) if self._passes_over else most
        return Taken(
            number=present.number,
            now=0 if present.at_start else max(part.now for part, _ in parts),
            updates=records[0].version,
            parts=(*(part for _, saved in parts for part in saved.parts), *files.values()),
            shards=records,
            totals=totals,
            bounds=tuple(self._plan.bounds),
            layers=tuple(self._plan.layers),
            of_script=self._is_script,
            ended=tuple(sorted(self._ended - files.keys())),
            anew=tuple(sorted(self.unrepeatable & files.keys())),
        )

    def _sums(self, present: Open, name: str, reported: Totals) -> Totals:
        scripts = self._scripts
        state = scripts.states.get(self._workers.get(name, -1))
        if state is None or scripts.servers_asked_at is not None:  # it went on until then
            return super()._sums(present, name, reported)
        return state.totals


def written_to(path: Path, data: torch.Tensor) -> Part | OSError:
    """Write bytes, a uint8 tensor, to a file; return the file, or why it cannot be written."""
    try:
        write_bytes(path, data.numpy().data)
        return checked(path)
    except OSError as error:
        return error


def shards_in(present: Open) -> tuple[ShardRecord, ...]:
    """Return the records of the servers' shards that are saved."""
    parts = sorted(present.parts.items())
    return tuple(saved.shard for _, (_, saved) in parts if saved.shard is not None)
