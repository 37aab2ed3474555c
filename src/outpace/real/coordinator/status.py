"""Writes about once a second how far a real run is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from outpace.engine.status import StatusFile
from outpace.real.net.messages import TrainingDone
from outpace.record.status import EVERY_S, Phase, ProcessStatus
from outpace.support.units import seconds

if TYPE_CHECKING:
    from outpace.real.coordinator.coordinator import Coordinator

# seconds without a report after which the others may be waiting for the process
_QUIET_S: Final = 3.0
_MOST_NAMES: Final = 4


class StatusOfRun:
    """Makes the coordinator's kernel write the status of its run.

    Args:
        nodes: returns the nodes of the processes by name, as far as they are known.
    """

    def __init__(
        self,
        file: StatusFile,
        nodes: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        self._file, self._nodes = file, nodes

    def attach(self, coordinator: Coordinator) -> None:
        """Write the status of this attempt, until its kernel is closed."""
        coordinator.kernel.spawn(self._keep(coordinator), "the status", daemon=True)

    def restarting(self, coordinator: Coordinator, why: str) -> None:
        """Show that all processes begin again from the last checkpoint, and why."""
        self._write(coordinator, "restarting", why)

    async def _keep(self, coordinator: Coordinator) -> None:
        while True:
            self._write(coordinator)
            await coordinator.kernel.sleep(EVERY_S)

    def _write(
        self, coordinator: Coordinator, phase: Phase | None = None, waits_for: str = ""
    ) -> None:
        processes = self._processes(coordinator)
        if phase == "restarting":
            for process in processes:
                process.state = "returning"
        time_s = 0.0
        if coordinator.started:
            time_s = seconds(coordinator.clock.now)
        if phase is None:
            phase = _phase(coordinator, processes)
            waits_for = _waits_for(coordinator, phase, processes)
        totals = coordinator.state.totals
        self._file.write(phase, time_s, totals, processes, waits_for)

    def _processes(self, coordinator: Coordinator) -> list[ProcessStatus]:
        run = coordinator.state
        names = [*coordinator.servers, *coordinator.workers]
        nodes = self._nodes()
        numbers = {name: worker for worker, name in enumerate(coordinator.workers)}
        iterations, before = run.totals.iterations, run.not_computed
        found = []
        for name in names:
            role = run.table.role(name)
            if role.has_finished:
                state = "finished"
            elif not run.awaited([name]):
                state = "lost"
            elif role.is_coming_back:
                state = "returning"
            elif run.announced.has_heard(name, TrainingDone):
                state = "left"
            elif name not in run.joined:
                state = "missing"
            else:
                state = "training" if coordinator.started else "joined"
            worker = numbers.get(name)
            found.append(
                ProcessStatus(
                    name=name,
                    state=state,
                    generation=self._file.events.generations.get(name, 0),
                    iteration=None
                    if worker is None
                    else iterations.get(worker, 0) + before.get(worker, 0),
                    quiet_s=_quiet_s(name, coordinator),
                    node=nodes.get(name),
                )
            )
        return found


def _quiet_s(name: str, coordinator: Coordinator) -> float | None:
    """Return the seconds since this process last reported; None if it has never reported."""
    run, at = coordinator.state, coordinator.state.reported_at.get(name)
    if at is None or name not in run.totals_of:
        return None
    return round(max(0.0, seconds(coordinator.kernel.now - at)), 1)


def _phase(coordinator: Coordinator, processes: Sequence[ProcessStatus]) -> Phase:
    if not coordinator.started:
        return "starting"
    is_training = any(_trains(each) or each.state == "returning" for each in processes)
    return "training" if is_training else "ending"


def _trains(process: ProcessStatus) -> bool:
    return process.iteration is not None and process.state == "training"


def _waits_for(coordinator: Coordinator, phase: Phase, processes: Sequence[ProcessStatus]) -> str:
    """Return a text that says what the run waits for; empty if it is not known."""
    if phase != "training":
        what, missing = coordinator.awaited
        return f"{_names(missing)} to {what}" if missing else ""
    if away := [each.name for each in processes if each.state == "returning"]:
        return f"{_names(away)} to come back"
    workers = [each for each in processes if _trains(each)]
    least = min(each.iteration or 0 for each in workers)
    quiet = [
        each
        for each in workers
        if each.iteration == least and each.quiet_s is not None and each.quiet_s >= _QUIET_S
    ]
    if not quiet:
        return ""
    longest = max(each.quiet_s or 0.0 for each in quiet)
    return (
        f"{_names([each.name for each in quiet])} in iteration {least}: nothing new for "
        f"{longest:.0f} s"
    )


def _names(names: Sequence[str]) -> str:
    shown, more = names[:_MOST_NAMES], len(names) - _MOST_NAMES
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")
