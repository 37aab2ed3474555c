"""BDSGD in real processes: they sleep, and a model is fitted to a recording. See real.yaml."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from benchmarks.papers.bdsgd.trainings import ALL, Measured, Plain, measured, with_models
from benchmarks.papers.bursts import WORKERS, drawn
from benchmarks.papers.claims import Claim
from benchmarks.papers.curves import Curve, read_curve
from benchmarks.papers.over_seeds import INTERVAL, Spread, over_seeds, show_spreads

from outpace import run as run_for_real
from outpace.config.reading import experiment_from
from outpace.predict.recorded import Seconds, write
from outpace.record.run_times import read_source

QUICK = (
    "seeds=1",
    "recording.stop.iterations=25",
    "experiment.stop={virtual_time_s: 15}",
)

SOON_S: Final = 0.05  # an aborted sleep ends after this time; otherwise it lasts up to 0.8 s longer


def run(data: Mapping[str, Any], out: Path) -> list[Claim]:
    """Record, fit, train in real processes, show and judge."""
    experiment = data["experiment"]
    first = data["seed"]
    path = _written(first, out / "recording.parquet")
    recording = _train(experiment | data["recording"], {"kind": "bsp"}, path, out / "recording")
    assert recording.folder is not None
    times = read_source(recording.folder, workers_per_node=1).times
    write(times, out / "recorded.parquet")
    strategies = with_models(data["strategies"], [times], out, "recorded", first)
    repetitions = []
    for seed in range(first + 1, first + 1 + data["seeds"]):
        place = out / f"seed-{seed}"
        path = _written(seed, out / f"seed-{seed}.parquet")
        seeded = {**experiment, "seed": seed}
        curves = {
            name: _train(seeded, sync, path, place / name) for name, sync in strategies.items()
        }
        repetitions.append(curves)
    rows = measured(repetitions)
    show_spreads("8 workers for real", rows)
    return claims(rows, [np.concatenate([_late(c) for c in each.values()]) for each in repetitions])


def _train(experiment: Plain, sync: Plain, times: Path, out: Path) -> Curve:
    """Train in real processes with the run times of a file."""
    law = {"kind": "trace", "path": str(times.resolve())}
    data = {**experiment, "workers": WORKERS, "compute": law, "sync": sync}
    run_for_real(experiment_from(data, "bdsgd-real", Path(__file__).parent), out)
    return read_curve(out)


def _written(seed: int, path: Path) -> Path:
    write(drawn(1000, seed), path)
    return path


def _late(run: Curve) -> Seconds:
    """Return how long workers that were cut off continued computing, in seconds."""
    closed = run.trace("cut-off", ["iteration", "end_ns"]).to_pylist()
    ended = {row["iteration"]: row["end_ns"] for row in closed}
    done = run.trace("iteration", ["iteration", "computed_ns"]).to_pylist()
    late = [row["computed_ns"] - ended.get(row["iteration"], np.inf) for row in done]
    return np.array([ns * 1e-9 for ns in late if ns > 0])


def claims(rows: Mapping[str, Measured], late: Sequence[Seconds]) -> list[Claim]:
    """Judge the runs. late: for each repetition, how long workers that were cut off continued."""
    found = [
        Claim(
            "8 processes",
            "predicted cut-offs train faster by the clock than waiting for all",
            f"{name}: {row.times_faster:.2f} times faster to the loss, "
            f"{row.seconds_to_accuracy:.1f} against "
            f"{rows[ALL].seconds_to_accuracy:.1f} s to the accuracy",
            row.seconds_to_loss.below(rows[ALL].seconds_to_loss),
            margin=INTERVAL,
        )
        for name, row in rows.items()
        if name != ALL
    ]

    def late_ms(level: float) -> Spread:
        return over_seeds(
            late, lambda each: 1e3 * float(np.quantile(each, level)) if len(each) else np.nan
        )

    most = late_ms(0.99)
    return [
        *found,
        Claim(
            "8 processes",
            "(ours) a worker that is cut off stops soon, asleep or not",
            f"{sum(map(len, late))} times; median {late_ms(0.5):.1f}, 99 % {most:.1f}, "
            f"longest {late_ms(1.0):.1f} ms",
            most.mean <= 1e3 * SOON_S,
            margin=f"99 % within {1e3 * SOON_S:.0f} ms",
        ),
    ]
