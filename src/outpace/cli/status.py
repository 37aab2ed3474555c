"""outpace status shows how a run is doing; outpace scale changes its number of processes."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
import typer

from outpace.cli.base import app, echo, print_rows
from outpace.support.words import plural

if TYPE_CHECKING:
    from outpace.experiment.status import RunState
    from outpace.record.status import Status


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
    status, summary = found.status, found.summary or {}
    yield f"{found.folder}: {_headline(found)}"
    if status is not None:
        yield from _progress(status)
        yield from _failures(msgspec.to_builtins(status))
    elif summary:
        yield _ended(summary)
        yield from _failures(summary)
    if found.state == "running":
        return
    parts = [
        f"{words} {known['value']:.4g} at {known['time_s']:.1f} s"
        for name, words in _QUANTITIES.items()
        if (known := (summary.get("best") or {}).get(name)) is not None
    ]
    if parts:
        yield f"best: {', '.join(parts)}"
    if found.resume is not None:
        yield f"checkpoint: {found.checkpoint}, at {found.checkpoint_s:.1f} s of the run"
        yield f"resume: {found.resume}"
    elif found.state != "complete":
        why = "there is no checkpoint (see `checkpoint` in the configuration)"
        if found.has_checkpoints:
            why = "all checkpoints are damaged, or of another version of Outpace"
        yield f"resume: not possible, {why}"


def _headline(found: RunState) -> str:
    if found.state != "running":
        return f"{found.state}: {found.error}" if found.error else found.state
    known = found.status
    line = f"{'starting' if known is None else known.phase}, {found.holder}"
    if known is not None:
        line += f" ({_span(time.time() - known.since)})"
    if found.stopped:
        line += "; this process is stopped by a signal (kill -CONT lets it continue)"
    elif found.late_s is not None:
        line += f"; it has written no status for {_span(found.late_s)}"
    return line


def _progress(known: Status) -> Iterator[str]:
    parts = [] if known.share is None else [f"{100 * known.share:.0f} %"]
    of = "" if known.most_iterations is None else f" of {known.most_iterations:,}"
    parts.append(f"iteration {known.iterations:,}{of} of the slowest worker")
    parts.append(f"{known.time_s:.1f} s{' of virtual time' if known.command == 'simulate' else ''}")
    rate = "" if known.gradients_per_s is None else f" ({known.gradients_per_s:,.1f}/s)"
    yield f"progress: {', '.join(parts)}, {known.gradients:,} gradients{rate}"
    if known.waits_for:
        yield f"waits for: {known.waits_for}"
    if known.elastic:
        yield f"elastic: {known.elastic}"
    last = known.checkpoints
    if last is not None and not last.number:
        yield "checkpoints: none yet"
    elif last is not None:
        at = "" if last.time_s is None else f", at {last.time_s:.1f} s"
        age = "from before the run was resumed"
        if last.written is not None:
            age = f"written {_span(time.time() - last.written)} ago"
        yield f"checkpoints: number {last.number}{at}, {age}"
    if last is not None and last.failure is not None:
        yield f"not written: {last.failure}"


def _ended(summary: dict[str, Any]) -> str:
    time_s = summary.get("virtual_time_s", summary.get("wall_time_s")) or 0.0
    kind = " of virtual time" if "virtual_time_s" in summary else ""
    return (
        f"progress: iteration {min(summary.get('iterations') or [0]):,} of the slowest worker, "
        f"{time_s:.1f} s{kind}, {summary.get('gradients_applied', 0):,} gradients"
    )


def _failures(counts: dict[str, Any]) -> Iterator[str]:
    """Yield a line about the failures that the run has survived, if there were any."""
    restarts, lost = counts.get("restarts", 0), counts.get("updates_lost", 0)
    resumed_from = counts.get("resumed_from")
    if restarts or lost or resumed_from:
        resumed = "" if resumed_from is None else f", resumed from {resumed_from}"
        yield f"failures: {plural(restarts, 'restart')}, {plural(lost, 'update')} lost{resumed}"


def _print_processes(known: Status) -> None:
    has_nodes = any(each.node for each in known.processes)
    rows = [["", *(["node"] if has_nodes else []), "iteration", "nothing new for", "state"]]
    for each in known.processes:
        iteration = "-" if each.iteration is None else f"{each.iteration:,}"
        quiet = "-" if each.quiet_s is None else _span(each.quiet_s)
        again = f", generation {each.generation}" if each.generation else ""
        node = [each.node or "-"] if has_nodes else []
        rows.append([each.name, *node, iteration, quiet, f"{each.state}{again}"])
    print_rows(rows)


def _span(span_s: float) -> str:
    """Return a duration as text, such as `3 min 20 s`."""
    minutes, seconds = divmod(max(0, round(span_s)), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {seconds} s" if minutes else f"{seconds} s"


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
