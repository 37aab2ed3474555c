"""Shows the progress of a real run in the terminal.

The coordinator's kernel draws the picture four times a second from the status of the run and the
sums that servers and workers report, without a thread, and only if standard error is a terminal.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.table import Column, Table
from rich.text import Text

from outpace.record.status import Status
from outpace.record.totals import Totals
from outpace.support.units import seconds
from outpace.support.words import plural

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
    until the checkpoint from which it was resumed.
    """

    time_s: float
    totals_of: Mapping[str, Totals]
    quality: Mapping[str, float] = {}  # the last train_loss, test_loss and accuracy


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
        drawing = _draw(run, run.coordinator, live)
        run.coordinator.kernel.spawn(drawing, "the picture", daemon=True)


async def _draw(run: RealRun, coordinator: Coordinator, live: Live) -> None:
    samples = [Sample(0.0, {})]
    try:
        while True:
            status = run.status.latest
            if status is not None and not coordinator.started:
                live.update(gathering(status), refresh=True)
            elif status is not None:
                time_s, totals = seconds(coordinator.clock.now), dict(coordinator.state.totals_of)
                samples.append(Sample(time_s, totals, dict(run.metrics.last)))
                del samples[: -_WINDOW - 1]
                live.update(picture(status, samples[-1], samples[0]), refresh=True)
            await coordinator.kernel.sleep(EVERY_S)
    except OSError:  # the terminal is gone, and the run continues
        pass
    finally:
        with contextlib.suppress(OSError):
            live.stop()


def _joined(parts: Iterable[str]) -> str:
    return "  ·  ".join(filter(None, parts))


def gathering(status: Status) -> Text:
    """Return the line that is shown before the start."""
    processes = status.processes
    missing = [each.name for each in processes if each.state == "missing"]
    joined = len(processes) - len(missing)
    which = f": {', '.join(missing)}" if len(missing) <= 4 and joined else ""
    waiting = f"; waiting for the others{which}" if missing else ""
    return Text(f"{joined} of {len(processes)} processes have joined{waiting}")


def picture(status: Status, now: Sample, before: Sample) -> RenderableType:
    """Return the picture of the run; rates are averages since `before`."""
    whole = Table.grid(padding=(0, 1))
    if (share := status.share) is not None:
        whole.add_row(ProgressBar(total=1.0, completed=share, width=30), f"{100 * share:.0f} %")
    lines = [overview(status, now, before), _survived(status)]
    return Group(whole, *(Text(line) for line in lines if line), _table(status, now, before))


def _survived(status: Status) -> str:
    """Return the line about checkpoints, restarts and what is awaited; empty if there is none."""
    parts, known = [], status.checkpoints
    if known is not None and known.time_s is not None:
        age_s = max(0.0, status.time_s - known.time_s)
        parts.append(f"checkpoint {known.number}, {age_s:.0f} s old")
    if known is not None and known.failure is not None:
        parts.append("the last one could not be written")
    if status.restarts:
        parts.append(plural(status.restarts, "restart"))
    if status.updates_lost:
        parts.append(f"{status.updates_lost} updates lost")
    if status.waits_for:
        parts.append(f"waits for {status.waits_for}")
    return _joined(parts)


def overview(status: Status, now: Sample, before: Sample) -> str:
    """Return one line about the run as a whole."""
    total, rate, span_s = Totals(), status.gradients_per_s, now.time_s - before.time_s
    for part in now.totals_of.values():
        total.add(part)
    parts = [f"{now.time_s:.0f} s", f"{status.gradients:,} gradients"]
    if rate is not None:
        parts[-1] += f" ({rate:,.1f}/s)"
    histogram = total.whole_histogram()
    if gradients := sum(histogram.values()):
        mean = sum(staleness * n for staleness, n in histogram.items()) / gradients
        parts.append(f"mean staleness {mean:.2f}")
    if total.dropped:
        parts.append(f"{total.dropped:,} dropped")
    if span_s > 0:
        servers = [each.name for each in status.processes if each.iteration is None]
        names = servers or [each.name for each in status.processes]
        sent = sum(_sent(name, now, before) for name in names) / span_s
        parts.append(f"{'servers' if servers else 'workers'} send {sent / 1e6:,.1f} MB/s")
    if (loss := now.quality.get("train_loss")) is not None:
        parts.append(f"training loss {loss:.4g}")
    if (accuracy := now.quality.get("accuracy")) is not None:
        parts.append(f"accuracy {100 * accuracy:.1f} %")
    return _joined(parts)


def _sent(name: str, now: Sample, before: Sample) -> int:
    """Return the bytes that a process has sent between two samples; 0 if it is another one now."""
    late, early = (sample.totals_of.get(name, Totals()).bytes_sent for sample in (now, before))
    return max(0, late - early)


def rows(status: Status, now: Sample, before: Sample) -> list[tuple[float, ...]]:
    """Return the row of each worker, without its name; shares are in percent of its time."""
    found, span_s = [], now.time_s - before.time_s
    for name, done in _workers(status).items():
        totals = now.totals_of.get(name, Totals())
        phases = totals.compute, totals.communicate, totals.wait
        spent = sum(phases) or 1
        rate = _sent(name, now, before) / 1e6 / span_s if span_s > 0 else 0.0
        found.append((done, *(100 * phase / spent for phase in phases), rate))
    slowest = min(row[0] for row in found)
    return [(row[0], row[0] - slowest, *row[1:]) for row in found]


def _workers(status: Status) -> dict[str, int]:
    """Return how many iterations each worker has completed, by its name."""
    return {p.name: p.iteration for p in status.processes if p.iteration is not None}


def _table(status: Status, now: Sample, before: Sample) -> Table:
    columns = (Column(title, justify="right") for title in _COLUMNS)
    table = Table("worker", *columns, box=None, padding=(0, 1), pad_edge=False, header_style="dim")
    nodes = {each.name: each.node for each in status.processes}
    for label, row in shown(rows(status, now, before)):
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
