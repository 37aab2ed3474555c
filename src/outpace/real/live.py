"""Shows the progress of a real run in the terminal.

The coordinator's kernel draws the status of the run once a second, without a thread, and only if
standard error is a terminal. `outpace status` shows every process.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from outpace.record.status import EVERY_S, Status
from outpace.support.words import plural

if TYPE_CHECKING:
    from outpace.real.run import RealRun

_BETWEEN: Final = "  ·  "


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
        run.coordinator.kernel.spawn(_draw(run, live), "the picture", daemon=True)


async def _draw(run: RealRun, live: Live) -> None:
    kernel = run.coordinator.kernel
    try:
        while True:
            if (status := run.status.latest) is not None:
                live.update(picture(status, run.metrics.last), refresh=True)
            await kernel.sleep(EVERY_S)
    except OSError:  # the terminal has been closed, but the run continues
        pass
    finally:
        with contextlib.suppress(OSError):
            live.stop()


def picture(status: Status, quality: Mapping[str, float]) -> RenderableType:
    """Return the picture of the run. quality: the last losses and accuracies."""
    whole = Table.grid(padding=(0, 1))
    if (share := status.share) is not None:
        whole.add_row(ProgressBar(total=1.0, completed=share, width=30), f"{100 * share:.0f} %")
    lines = [_progress(status, quality), _survived(status)]
    return Group(whole, *(Text(_BETWEEN.join(parts)) for parts in lines if parts))


def _progress(status: Status, quality: Mapping[str, float]) -> list[str]:
    rate = "" if status.gradients_per_s is None else f" ({status.gradients_per_s:,.1f}/s)"
    parts = [f"{status.time_s:.0f} s", f"{status.gradients:,} gradients{rate}"]
    if (loss := quality.get("train_loss")) is not None:
        parts.append(f"training loss {loss:.4g}")
    if (accuracy := quality.get("accuracy")) is not None:
        parts.append(f"accuracy {100 * accuracy:.1f} %")
    return parts


def _survived(status: Status) -> list[str]:
    """Return the line about failures that the run has survived, and about what it waits for."""
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
    return parts
