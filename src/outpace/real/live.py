"""Shows the progress of a real run in the terminal.

The coordinator's kernel draws the picture four times a second from the sums that servers and
workers report, without a thread, and only if standard error is a terminal.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.table import Column, Table
from rich.text import Text

from outpace.config.experiment import Experiment
from outpace.real.slow_servers import SlowServers
from outpace.real.slow_workers import SlowWorkers
from outpace.record.totals import Totals
from outpace.support.units import seconds
from outpace.sync.messages import server_name, worker_name

if TYPE_CHECKING:
    from outpace.real.coordinator.coordinator import Coordinator
    from outpace.real.run import RealRun

EVERY_S: Final = 0.25
MOST_ROWS: Final = 16  # with more workers, quantiles are shown
_WINDOW: Final = 8  # pictures over which rates are averaged
_QUANTILES: Final = {"least": 0.0, "25 %": 0.25, "median": 0.5, "75 %": 0.75, "most": 1.0}
_COLUMNS: Final = ("iteration", "lead", "compute %", "communicate %", "wait %", "MB/s")


class Sample(NamedTuple):
    """The sums of the run's parts at one time of it, and what is known of the result.

    A part is a process; or what a process had done whose place another one has taken; or the run
    until the checkpoint from which it goes on.
    """

    time_s: float
    totals_of: Mapping[str, Totals]
    quality: Mapping[str, float] = {}  # the last train_loss, test_loss and accuracy
    not_computed: Mapping[int, int] = {}  # iterations that were done before a worker was there


def watch(run: RealRun, console: Console | None = None) -> None:
    """Draw this run until it ends, if standard error is a terminal."""
    console = console or Console(stderr=True)
    if console.is_terminal:
        live = Live(
            console=console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=sys.stdout.isatty(),  # printed lines appear above the picture
        )
        live.start()
        slow = SlowWorkers(run.coordinator.experiment), SlowServers(run.coordinator.experiment)
        run.coordinator.reports.on_rows += [each.take for each in slow]
        drawing = _draw(run, run.coordinator, live, slow)
        run.coordinator.kernel.spawn(drawing, "the picture", daemon=True)


async def _draw(
    run: RealRun, coordinator: Coordinator, live: Live, slow: tuple[SlowWorkers, SlowServers]
) -> None:
    names, roles = coordinator.servers + coordinator.workers, coordinator.roles
    metrics = run.metrics
    samples = [Sample(0.0, {})]
    try:
        while True:
            drawn: RenderableType = gathering(names, list(roles.joined))
            if coordinator.started:
                time_s, totals = seconds(coordinator.clock.now), dict(coordinator.state.totals_of)
                before = coordinator.state.not_computed
                samples.append(Sample(time_s, totals, dict(metrics.last), before))
                del samples[: -_WINDOW - 1]
                named = "  ·  ".join(filter(None, (each.line() for each in slow)))
                survived = "  ·  ".join(filter(None, (_survived(run, time_s), _waits(run))))
                lines = [named, survived]
                known = coordinator.experiment, samples[-1], samples[0]
                drawn = picture(*known, *lines, nodes=run.nodes())
            live.update(drawn, refresh=True)
            await coordinator.kernel.sleep(EVERY_S)
    except OSError:  # the terminal is gone, and the run goes on
        pass
    finally:
        with contextlib.suppress(OSError):
            live.stop()


def gathering(names: Sequence[str], joined: Sequence[str]) -> Text:
    """Return the line that is shown before the start."""
    missing = [name for name in names if name not in joined]
    which = f": {', '.join(missing)}" if len(missing) <= 4 and joined else ""
    waiting = f"; waiting for the others{which}" if missing else ""
    return Text(f"{len(joined)} of {len(names)} processes have joined{waiting}")


def _survived(run: RealRun, time_s: float) -> str:
    """Return the line about checkpoints and restarts; empty if there are none."""
    parts, last, recovery = [], run.events.checkpoint, run.recovery()
    if last is not None:
        parts.append(f"checkpoint {last.number}, {max(0.0, time_s - last.time_s):.0f} s old")
    if run.events.failure is not None:
        parts.append("the last one could not be written")
    if recovery.restarts:
        parts.append(f"{recovery.restarts} restart{'s' if recovery.restarts > 1 else ''}")
    if recovery.updates_lost:
        parts.append(f"{recovery.updates_lost} updates lost")
    return "  ·  ".join(parts)


def _waits(run: RealRun) -> str:
    return f"waits for {run.waits_for}" if run.waits_for else ""


def picture(
    experiment: Experiment,
    now: Sample,
    before: Sample,
    slow: str = "",
    survived: str = "",
    *,
    nodes: Mapping[str, str] = {},
) -> RenderableType:
    """Return the picture of the run; rates are averages since `before`.

    Args:
        slow: The line about slow workers, servers and links; empty: there is none.
        survived: The line about checkpoints, restarts and what the run waits for; empty: there is
            none.
        nodes: Those of the processes, by name; empty: all are on this machine.
    """
    whole = Table.grid(padding=(0, 1))
    done = share_done(experiment, now)
    if done is not None:
        whole.add_row(ProgressBar(total=1.0, completed=done, width=30), f"{100 * done:.0f} %")
    lines = [Text(overview(experiment, now, before)), *([Text(f"slow: {slow}")] if slow else [])]
    if survived:
        lines.append(Text(survived))
    return Group(whole, *lines, _table(experiment, now, before, nodes))


def share_done(experiment: Experiment, now: Sample) -> float | None:
    """Return the share done, of iterations or time, whichever ends first; None if unknown."""
    stop, shares = experiment.stop, list[float]()
    if stop.iterations is not None:
        each = [row[0] / stop.iterations for row in rows(experiment, now, now)]
        shares.append(sum(each) / len(each))
    if stop.virtual_time_s is not None:
        shares.append(now.time_s / stop.virtual_time_s)
    return min(1.0, max(shares)) if shares else None


def overview(experiment: Experiment, now: Sample, before: Sample) -> str:
    """Return one line about the run as a whole."""
    late, early = _totals(now), _totals(before)
    span_s = now.time_s - before.time_s
    parts = [f"{now.time_s:.0f} s", f"{late.applied:,} gradients"]
    if span_s > 0:
        gained = max(0, late.applied - early.applied)  # the run may have gone back
        parts[-1] += f" ({gained / span_s:,.1f}/s)"
    histogram = late.whole_histogram()
    if gradients := sum(histogram.values()):
        mean = sum(staleness * n for staleness, n in histogram.items()) / gradients
        parts.append(f"mean staleness {mean:.2f}")
    if late.dropped:
        parts.append(f"{late.dropped:,} dropped")
    if span_s > 0:
        sent = max(0, _sent(experiment, now) - _sent(experiment, before)) / span_s
        senders = "servers" if experiment.servers_in_run else "workers"
        parts.append(f"{senders} send {sent / 1e6:,.1f} MB/s")
    if (loss := now.quality.get("train_loss")) is not None:
        parts.append(f"training loss {loss:.4g}")
    if (accuracy := now.quality.get("accuracy")) is not None:
        parts.append(f"accuracy {100 * accuracy:.1f} %")
    return "  ·  ".join(parts)


def _totals(sample: Sample) -> Totals:
    total = Totals()
    for part in sample.totals_of.values():
        total.add(part)
    return total


def _sent(experiment: Experiment, sample: Sample) -> int:
    """Return the bytes that the servers have sent, or the workers of a run without servers."""
    names = [server_name(server) for server in range(experiment.servers_in_run)]
    names = names or [worker_name(worker) for worker in range(experiment.workers)]
    return sum(sample.totals_of.get(name, Totals()).bytes_sent for name in names)


def rows(experiment: Experiment, now: Sample, before: Sample) -> list[tuple[float, ...]]:
    """Return the row of each worker, without its name; shares are in percent of its time."""
    found = []
    for worker in range(experiment.workers):
        name = worker_name(worker)
        late, early = (sample.totals_of.get(name, Totals()) for sample in (now, before))
        phases = late.compute, late.communicate, late.wait
        spent = sum(phases) or 1
        span_s = now.time_s - before.time_s
        sent = max(0, late.bytes_sent - early.bytes_sent)
        rate = sent / 1e6 / span_s if span_s > 0 else 0.0
        shares = (100 * phase / spent for phase in phases)
        done = sum(part.iterations.get(worker, 0) for part in now.totals_of.values())
        done += now.not_computed.get(worker, 0)
        found.append((done, *shares, rate))
    slowest = min(row[0] for row in found)
    return [(row[0], row[0] - slowest, *row[1:]) for row in found]


def _table(experiment: Experiment, now: Sample, before: Sample, nodes: Mapping[str, str]) -> Table:
    columns = (Column(title, justify="right") for title in _COLUMNS)
    table = Table("worker", *columns, box=None, padding=(0, 1), pad_edge=False, header_style="dim")
    for label, row in shown(rows(experiment, now, before)):
        if node := nodes.get(f"worker-{label}"):  # a quantile has none
            label = f"{label} ({escape(node)})"
        table.add_row(label, *(f"{value:,.0f}" for value in row[:-1]), f"{row[-1]:,.1f}")
    return table


def shown(found: Sequence[tuple[float, ...]]) -> list[tuple[str, tuple[float, ...]]]:
    """Return the rows to show: all workers, or quantiles of each column if there are many."""
    if len(found) <= MOST_ROWS:
        return [(str(worker), row) for worker, row in enumerate(found)]
    columns = [sorted(column) for column in zip(*found, strict=True)]
    last = len(found) - 1
    return [
        (label, tuple(column[round(share * last)] for column in columns))
        for label, share in _QUANTILES.items()
    ]
