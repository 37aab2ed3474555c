"""Real runs, and predictions of each of them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

from benchmarks.fidelity.outcome import Outcome, Quantities, over_seeds, quantities
from benchmarks.fidelity.setups import BSP, SSGD, Plain, Setup, has_servers

import outpace
from outpace.experiment.calibrating import calibrate, write_calibration
from outpace.experiment.results import Result
from outpace.support.yaml_files import read_yaml

RunReal: TypeAlias = Callable[[Plain, Path], Result]
Measured: TypeAlias = tuple[Quantities, tuple[float, float]]  # with the load before and after

SAME: Final = "same draws"
CALIBRATED: Final = "calibrated"
ON_BOTH: Final = "calibrated on BSP and SSGD"
CALIBRATION: Final = "calibration"  # folder of the run that is used for calibration
LOAD: Final = "load.json"  # in the folder of a real run


@dataclass(frozen=True)
class Plan:
    """How much is measured.

    Attributes:
        seeds: seeds of the real runs; the run for calibration has the previous seed.
        draws: number of seeds of a prediction with an interval.
        out: the folder for runs.
        earlier: the `out` of an earlier measurement, whose real runs are read instead of repeated.
    """

    seeds: Sequence[int]
    draws: int
    out: Path
    earlier: Path | None = None


def measure(
    setup: Setup, names: Sequence[str], plan: Plan, run: RunReal, say: Callable[[str], None]
) -> Iterator[Outcome]:
    """Run everything for real, then yield the outcomes.

    Real runs are made first and without pauses, so the machine must be idle only for their
    duration. They can be predicted again with `Plan.earlier`.

    Raises:
        ConfigError: if the runs cannot be used for calibration.
    """
    first = plan.seeds[0] - 1
    of_bsp, _ = _real(setup.experiment(BSP, first, **setup.calibration), CALIBRATION, plan, run)
    cluster, on_both = _calibrated([of_bsp], plan.out / "cluster.yaml"), None
    say(f"calibrated on {BSP}, {quantities(of_bsp, setup.loss)['total']:.2f} s")
    if not all(has_servers(setup.experiment(name, 0)) for name in names):
        of_ssgd = setup.experiment(SSGD, first, **setup.calibration)
        with_all_reduces, _ = _real(of_ssgd, f"{CALIBRATION}-{SSGD}", plan, run)
        file = plan.out / "cluster-with-all-reduces.yaml"
        on_both = _calibrated([of_bsp, with_all_reduces], file)
    measured: dict[tuple[int, str], Measured] = {}
    for seed in plan.seeds:
        for name in names:
            folder = f"{name.replace(' ', '-')}-seed-{seed}"
            result, load = _real(setup.experiment(name, seed), folder, plan, run)
            real = quantities(result, setup.loss)
            measured[seed, name] = real, load
            say(f"{name}, seed {seed}: {real['total']:.2f} s for real; load {load[1]:.1f}")
    drawn: dict[str, tuple[Quantities, Quantities, Quantities]] = {}
    for (seed, name), (real, load) in measured.items():
        experiment = setup.experiment(name, seed)
        outcome = partial(Outcome, setup.part, setup.name, name, seed, real=real, load=load)
        if setup.known_law:
            same = _predicted(setup, experiment, cluster)
            yield outcome(cluster=CALIBRATED, law=SAME, predicted=same)
        if name not in drawn:
            drawn[name] = _over_seeds(setup, name, plan.draws, cluster)
        mean, low, high = drawn[name]
        yield outcome(cluster=CALIBRATED, law=CALIBRATED, predicted=mean, low=low, high=high)
        if on_both is not None and setup.known_law and not has_servers(experiment):
            same = _predicted(setup, experiment, on_both)
            yield outcome(cluster=ON_BOTH, law=SAME, predicted=same)
        say(f"{name}, seed {seed}: predicted")


def _real(
    experiment: Plain, folder: str, plan: Plan, run: RunReal
) -> tuple[Result, tuple[float, float]]:
    """Return the result of a real run, or of an earlier one, and the load before and after it."""
    if plan.earlier is not None:
        found = Result.read(plan.earlier / folder)
        before, after = json.loads((plan.earlier / folder / LOAD).read_text("utf-8"))
        return found, (before, after)
    before = os.getloadavg()[0]
    result = run(experiment, plan.out / folder)
    load = before, os.getloadavg()[0]
    (plan.out / folder / LOAD).write_text(json.dumps(load), "utf-8")
    return result, load


def _predicted(setup: Setup, experiment: Plain, cluster: Path) -> Quantities:
    include = {"include": str(cluster.resolve())}
    return quantities(outpace.simulate(experiment | include), setup.loss)


def _over_seeds(
    setup: Setup, name: str, draws: int, cluster: Path
) -> tuple[Quantities, Quantities, Quantities]:
    """Return the prediction with calibrated run times, and the ends of its interval.

    The law of run times is drawn for each seed within the errors of its calibration, if the file
    has errors; a law of regimes has none. From recorded times blocks are drawn.
    """
    said = read_yaml(cluster).get("calibrated", {})
    states_errors = not {"errors", "block"}.isdisjoint(said.get("compute", {}))
    found = [
        _predicted(
            setup,
            _without_law(setup.experiment(name, 1000 + n)) | {"draw_cluster": states_errors},
            cluster,
        )
        for n in range(draws)
    ]
    calibrated = said.get("iterations", 0) * said.get("workers", 0)
    predicted = setup.base["stop"]["iterations"] * setup.base["workers"]
    share = predicted / calibrated if calibrated and not states_errors else 0.0
    return over_seeds(found, share)


def _without_law(experiment: Plain) -> Plain:
    return {key: value for key, value in experiment.items() if key != "compute"}


def _calibrated(results: Sequence[Result], file: Path) -> Path:
    folders = [result.folder for result in results if result.folder is not None]
    file.parent.mkdir(parents=True, exist_ok=True)
    write_calibration(calibrate(folders), file)
    return file
