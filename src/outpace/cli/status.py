"""outpace status | scale: how a run is doing, or has ended; other numbers for a running one."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from outpace.cli.base import app, echo, print_rows

if TYPE_CHECKING:
    from outpace.experiment.status import RunState
    from outpace.record.status import CheckpointStatus, Status


_MOST_ROWS: Final = 32  # processes
_QUANTITIES: Final = {
    "accuracy": "accuracy",
    "train_loss": "training loss",
    "test_loss": "test loss",
}


@app.command()
def status(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run.")],
    as_json: Annotated[
        bool, typer.Option("--json", help="Print all that is known as JSON, and nothing else.")
    ] = False,
) -> None:
    """Say how far a run is, what it waits for, and whether it can be resumed.

    It reads files only, so it does not disturb the run. RUN is real or simulated.
    """
    from outpace.experiment.status import run_state

    found = run_state(run)
    if as_json:
        echo(json.dumps(found.to_plain(), indent=2, allow_nan=False))
        return
    for line in _lines(found):
        echo(" ".join(line.split("\n")))
    if found.status is not None and found.status.processes:
        echo("" if found.state == "running" else "\nprocesses, as last seen:")
        _print_processes(found.status)


def _lines(found: RunState) -> Iterator[str]:
    yield f"{found.folder}: {_headline(found)}"
    if found.status is not None:
        yield from _progress(found.status, is_running=found.state == "running")
    elif found.summary:
        yield from _ended(found.summary)
    if found.state == "running":
        return
    if best := _best(found.summary or {}):
        yield best
    if found.checkpoint is not None and found.resume is not None:
        yield f"checkpoint: {found.checkpoint}, at {found.checkpoint_s:.1f} s of the run"
        yield f"resume: {found.resume}"
    elif found.state != "complete":
        why = "there is no checkpoint (see `checkpoint` in the configuration)"
        if found.has_checkpoints:
            why = "all checkpoints are damaged, or of a newer version of Outpace"
        yield f"resume: not possible, {why}"


def _headline(found: RunState) -> str:
    if found.state != "running":
        return f"{found.state}: {found.error}" if found.error else found.state
    known = found.status
    phase = "starting" if known is None else known.phase
    line = f"{phase}, {found.holder}"
    if known is not None and known.since < known.at:
        line += f" ({_span(time.time() - known.since)})"
    if found.stopped:
        line += "; this process is stopped by a signal (kill -CONT lets it continue)"
    elif found.late_s is not None:
        line += f"; it has written no status for {_span(found.late_s)}"
    return line


def _progress(known: Status, *, is_running: bool) -> Iterator[str]:
    parts = [] if known.share is None else [f"{100 * known.share:.0f} %"]
    of = "" if known.most_iterations is None else f" of {known.most_iterations:,}"
    parts.append(f"iteration {known.iterations:,}{of} of the slowest worker")
    parts.append(f"{known.time_s:.1f} s{' of virtual time' if known.command == 'simulate' else ''}")
    rate = "" if known.gradients_per_s is None else f" ({known.gradients_per_s:,.1f}/s)"
    parts.append(f"{known.gradients:,} gradients{rate}")
    yield f"progress: {', '.join(parts)}"
    if known.waits_for:
        yield f"waits for: {known.waits_for}"
    if known.elastic:
        yield f"elastic: {known.elastic}"
    if is_running:
        yield f"checkpoints: {_checkpoints(known, known.checkpoints)}"
    if known.checkpoints is not None and known.checkpoints.failure is not None:
        yield f"not written: {known.checkpoints.failure}"
    survived = _survived(known.restarts, known.updates_lost, known.resumed_from)
    if survived:
        yield survived


def _ended(summary: dict[str, Any]) -> Iterator[str]:
    iterations = summary.get("iterations") or [0]
    time_s = summary.get("virtual_time_s", summary.get("wall_time_s")) or 0.0
    kind = " of virtual time" if "virtual_time_s" in summary else ""
    yield (
        f"progress: iteration {min(iterations):,} of the slowest worker, {time_s:.1f} s{kind}, "
        f"{summary.get('gradients_applied', 0):,} gradients"
    )
    survived = _survived(
        summary.get("restarts", 0), summary.get("updates_lost", 0), summary.get("resumed_from")
    )
    if survived:
        yield survived


def _best(summary: dict[str, Any]) -> str:
    """Return a line about the best values so far; empty if there are none."""
    best = summary.get("best") or {}
    parts = [
        f"{words} {known['value']:.4g} at {known['time_s']:.1f} s"
        for name, words in _QUANTITIES.items()
        if (known := best.get(name)) is not None
    ]
    return f"best: {', '.join(parts)}" if parts else ""


def _checkpoints(status: Status, known: CheckpointStatus | None) -> str:
    if known is None:
        return "none are taken"
    every = f"every {known.every['every_s']:g} s" if "every_s" in known.every else ""
    if "every_updates" in known.every:
        every = f"every {known.every['every_updates']:,.0f} updates"
    if not known.number:
        return f"none yet ({every})"
    parts = [f"number {known.number}"]
    if known.time_s is not None:
        parts.append(f"at {known.time_s:.1f} s")
    if known.written is not None:
        age_s = time.time() - known.written
        if known.time_s is not None and status.command != "simulate":
            # Since it was taken. What is done meanwhile is not in it.
            age_s = time.time() - status.at + status.time_s - known.time_s
        parts.append(f"{_span(age_s)} old")
    else:
        parts.append("from before the run was resumed")
    return f"{', '.join(parts)} ({every})"


def _survived(restarts: int, updates_lost: int, resumed_from: str | None) -> str:
    """Return a line about failures that the run has survived; empty if there were none."""
    if not (restarts or updates_lost or resumed_from):
        return ""
    resumed = "" if resumed_from is None else f", resumed from {resumed_from}"
    words = "1 restart" if restarts == 1 else f"{restarts} restarts"
    lost = "1 update" if updates_lost == 1 else f"{updates_lost} updates"
    return f"failures: {words}, {lost} lost{resumed}"


def _print_processes(known: Status) -> None:
    shown = known.processes
    if len(shown) > _MOST_ROWS:
        shown = sorted(shown, key=lambda each: (each.iteration is None, each.iteration))
    has_nodes = any(each.node for each in known.processes)
    rows = [["", *(["node"] if has_nodes else []), "iteration", "nothing new for", "state"]]
    for each in shown[:_MOST_ROWS]:
        iteration = "-" if each.iteration is None else f"{each.iteration:,}"
        quiet = "-" if each.quiet_s is None else _span(each.quiet_s)
        again = f", generation {each.generation}" if each.generation else ""
        node = [each.node or "-"] if has_nodes else []
        rows.append([each.name, *node, iteration, quiet, f"{each.state}{again}"])
    print_rows(rows)
    if (more := len(shown) - _MOST_ROWS) > 0:
        echo(f"and {more} more processes; --json has all of them")


def _span(span_s: float) -> str:
    """Return a duration in words, such as `3 min 20 s`."""
    whole = max(0, round(span_s))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


@app.command()
def scale(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a running run.")],
    workers: Annotated[
        int | None, typer.Option(help="The number of workers from now on.", min=1)
    ] = None,
    servers: Annotated[
        int | None, typer.Option(help="The number of servers from now on.", min=1)
    ] = None,
    wait_s: Annotated[
        float, typer.Option("--wait", help="Seconds to wait until it is done.", min=0.0)
    ] = 600.0,
) -> None:
    """Change the number of workers or servers of a run on real processes.

    The run takes a checkpoint, ends its processes, and begins again from the checkpoint with the
    new numbers, as with --resume. So it needs `checkpoint`. The command waits until it trains.
    After --wait it ends with exit code 1, and the run still makes the change.
    """
    from outpace.experiment.scaling import scaled

    echo(scaled(run, servers=servers, workers=workers, limit_s=wait_s))
