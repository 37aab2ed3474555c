"""Compare what profiler traces of DDP runs predict with real runs.

    python -m benchmarks.traces [2] [4]        # ranks

A DDP training over Gloo on this computer, in which one rank is slow, is profiled with
torch.profiler. `outpace calibrate` reads its traces. Predicted are the time of a step of this run,
of one without the slow rank, and of local SGD with it, which are then made for real, without a
profiler. Exit code 1 if a goal is missed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from benchmarks.parts import Benchmark, Cells
from benchmarks.traces.measuring import GOALS, SLOW, Outcome, measure
from benchmarks.traces.training import Training

from outpace.record.folder import free_folder

RUNS = Path("runs/traces")
SEEDS: Final = 3


def _measured(part: str, say: Callable[[str], object], quick: bool) -> list[Cells]:
    found: list[Outcome] = []
    ranks = int(part)
    with free_folder(RUNS, "traces") as out:
        for seed in range(1 if quick else SEEDS):
            if quick:
                training = Training(ranks, 25, 0.04, 0.5, seed, {SLOW: 2.0})
            else:
                training = Training(ranks, 200, 0.08, 8.0, seed, {SLOW: 1.6})
            found += measure(training, out / f"seed-{seed}", say)
    return table(found)


def table(outcomes: Sequence[Outcome]) -> list[Cells]:
    """Return the outcomes as rows of a table."""
    return [
        {
            "ranks": each.workers,
            "step": each.what,
            "seed": each.seed,
            "for real": f"{1e3 * each.real_s:.1f} ms",
            "predicted": f"{1e3 * each.predicted_s:.1f} ms",
            "error": f"{100 * each.error:+.1f} %",
            "goal": f"{100 * GOALS[each.what]:.0f} %",
            "met": each.met,
        }
        for each in sorted(outcomes, key=lambda each: (each.what, each.seed))
    ]


BENCHMARK = Benchmark("traces", __doc__ or "", ("2", "4"), _measured)


if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
