"""Compare what profiler traces of DDP runs predict with real runs.

    python -m benchmarks.traces                # 2 and 4 ranks
    python -m benchmarks.traces --workers 4 --steps 300

A DDP training over Gloo on this computer, in which one rank is slow, is profiled with
torch.profiler. `outpace calibrate` reads its traces. Predicted are the time of a step of this run,
of one without the slow rank, and of local SGD with it, which are then made for real, without a
profiler. Exit code 1 if a goal is missed.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from benchmarks.traces.measuring import GOALS, SLOW, Outcome, measure
from benchmarks.traces.training import Training

from outpace.errors import OutpaceError
from outpace.record.folder import free_folder

RUNS = Path("runs/traces")
QUICK: Final[dict[str, Any]] = {"steps": 25, "mean_s": 0.04, "mb": 0.5, "slow": {SLOW: 2.0}}


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0, or 1 if a goal is missed or a run failed, 2 for a wrong option."""
    parser = argparse.ArgumentParser(
        prog="benchmarks.traces",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--workers", type=int, nargs="+", default=[2, 4], help="ranks")
    parser.add_argument("--steps", type=int, default=200, help="profiled steps")
    parser.add_argument("--mean", type=float, default=0.08, help="mean sleep of a step, in s")
    parser.add_argument("--mb", type=float, default=8.0, help="parameters, in million bytes")
    parser.add_argument("--slow", type=float, default=1.6, help="factor of the slow rank's sleep")
    parser.add_argument("--seeds", type=int, default=1, help="runs, with other sleeps in each")
    parser.add_argument("--quick", action="store_true", help="seconds: does it work at all")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the outcomes there")
    options = parser.parse_args(arguments)
    say = partial(print, file=sys.stderr, flush=True)
    found: list[Outcome] = []
    try:
        with free_folder(RUNS, "traces") as out:
            for workers in [2] if options.quick else options.workers:
                for seed in range(options.seeds):
                    training = Training(
                        workers,
                        options.steps,
                        options.mean,
                        options.mb,
                        seed,
                        {SLOW: options.slow},
                    )
                    if options.quick:
                        training = replace(training, **QUICK)
                    found += measure(training, out / f"{workers}-ranks-seed-{seed}", say)
    except (OutpaceError, RuntimeError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if options.json:
        rows = [each.plain() for each in found]
        options.json.write_text(json.dumps(rows, indent=1) + "\n", "utf-8")
    print(markdown(found))
    return int(not all(each.met for each in found))


def markdown(outcomes: Sequence[Outcome]) -> str:
    """Return a table of the outcomes."""
    lines = [
        "| ranks | step | seed | for real | predicted | error | goal |",
        "|---|---|---|---|---|---|---|",
    ]
    for each in sorted(outcomes, key=lambda each: (each.workers, each.what, each.seed)):
        goal = f"{100 * GOALS[each.what]:.0f} %: {'met' if each.met else '**missed**'}"
        lines.append(
            f"| {each.workers} | {each.what} | {each.seed} | {1e3 * each.real_s:.1f} ms "
            f"| {1e3 * each.predicted_s:.1f} ms | {100 * each.error:+.1f} % | {goal} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
