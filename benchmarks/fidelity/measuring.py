"""Real runs, and predictions of each of them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
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
CALIBRATION: Final = "calibration"  # folder of the run that is calibrated on
LOAD: Final = "load.json"  # in the folder of a real run
NONE: Final = "none"
DESCRIBED: Final = "described"


@dataclass(frozen=True)
class Plan:
    """How much is measured.

    Attributes:
        seeds: seeds of the real runs; the run that is calibrated on has the seed before.
        draws: number of seeds that a prediction with an interval is made of.
        calibrate: False to predict without any calibration.
        cluster: a cluster file in place of a calibration.
        out: the folder for runs.
        earlier: the `out` of an earlier measurement, whose real runs are read instead of repeated.
        calibrate_anew: True to repeat the run that is calibrated on nevertheless.
    """

    seeds: Sequence[int]
    draws: int
    calibrate: bool
    cluster: Path | None
    out: Path
    earlier: Path | None = None
    calibrate_anew: bool = False


def measure(
    setup: Setup, names: Sequence[str], plan: Plan, run: RunReal, say: Callable[[str], None]
) -> Iterator[Outcome]:
    """Run everything for real, then yield the outcomes.

    Real runs come first and follow each other at once, so that the machine has to be idle only for
    as long as they take. They can be predicted again with `Plan.earlier`.
    """
    if not (setup.known_law or plan.calibrate or plan.cluster):
        say("left out: without a calibration the run times are not known")
        return
    clusters = {CALIBRATED: _cluster(setup, plan, run, say)}
    if not all(has_servers(setup.experiment(name, 0)) for name in names):
        clusters[ON_BOTH] = _cluster_of_both(setup, plan, run, say)
    measured: dict[tuple[int, str], Measured] = {}
    for seed in plan.seeds:
        for name in names:
            folder = f"{name.replace(' ', '-')}-seed-{seed}"
            result, load = _real(setup.experiment(name, seed), folder, plan, run)
            real = quantities(result, setup.loss)
            measured[seed, name] = real, load
            say(f"{name}, seed {seed}: {real['total']:.2f} s for real; load {load[1]:.1f}")
    yield from _outcomes(setup, measured, plan, clusters, say)


def _outcomes(
    setup: Setup,
    measured: Mapping[tuple[int, str], Measured],
    plan: Plan,
    clusters: Mapping[str, Path | None],
    say: Callable[[str], None],
) -> Iterator[Outcome]:
    """Predict each real run, given by seed and strategy, and yield both.

    clusters: cluster files, by what they were calibrated on.
    """
    cluster, on_both = clusters[CALIBRATED], clusters.get(ON_BOTH)
    drawn: dict[str, tuple[Quantities, Quantities, Quantities]] = {}
    for (seed, name), (real, load) in measured.items():
        experiment = setup.experiment(name, seed)

        def outcome(
            of: str,
            law: str,
            predicted: Quantities,
            *ends: Quantities,
            name: str = name,
            seed: int = seed,
            real: Quantities = real,
            load: tuple[float, float] = load,
        ) -> Outcome:
            where = setup.part, setup.name, name, seed
            return Outcome(*where, of, law, predicted, real, load, *ends)

        if setup.known_law:
            yield outcome(NONE, SAME, _predicted(setup, experiment))
        if setup.known is not None:
            yield outcome(DESCRIBED, SAME, _predicted(setup, setup.described(experiment)))
        if cluster is not None:
            if setup.known_law:
                yield outcome(CALIBRATED, SAME, _predicted(setup, experiment, cluster))
            if name not in drawn:
                drawn[name] = _over_seeds(setup, name, plan.draws, cluster)
            yield outcome(CALIBRATED, CALIBRATED, *drawn[name])
        if on_both is not None and setup.known_law and not has_servers(experiment):
            yield outcome(ON_BOTH, SAME, _predicted(setup, experiment, on_both))
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


def _predicted(setup: Setup, experiment: Plain, cluster: Path | None = None) -> Quantities:
    include = {} if cluster is None else {"include": str(cluster.resolve())}
    return quantities(outpace.simulate(experiment | include), setup.loss)


def _over_seeds(
    setup: Setup, name: str, draws: int, cluster: Path
) -> tuple[Quantities, Quantities, Quantities]:
    """Return what is predicted with calibrated run times, and the ends of its interval.

    The law of run times is drawn for each seed within the errors of its calibration, if it states
    them: a law of regimes has none. Of recorded times blocks are drawn.
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


def _cluster(setup: Setup, plan: Plan, run: RunReal, say: Callable[[str], None]) -> Path | None:
    """Return the cluster file: given, or calibrated on a run with BSP.

    Raises:
        ConfigError: if the run cannot be calibrated on.
    """
    if plan.cluster is not None or not plan.calibrate:
        return plan.cluster
    result = _recorded(setup, BSP, CALIBRATION, _of_calibration(plan), run)
    say(f"calibrated on {BSP}, {quantities(result, setup.loss)['total']:.2f} s")
    return _calibrated([result], plan.out / "cluster.yaml")


def _cluster_of_both(
    setup: Setup, plan: Plan, run: RunReal, say: Callable[[str], None]
) -> Path | None:
    """Return a cluster file that was calibrated on a run with SSGD as well: on all-reduces."""
    if plan.cluster is not None or not plan.calibrate:
        return None
    plan = _of_calibration(plan)
    name = f"{CALIBRATION}-{SSGD}"
    if plan.earlier is not None and not (plan.earlier / name).is_dir():
        say(f"{plan.earlier} has no run {name}: all-reduces are not calibrated")
        return None
    result = _recorded(setup, SSGD, name, plan, run)
    on_bsp = Result.read((plan.earlier or plan.out) / CALIBRATION)
    return _calibrated([on_bsp, result], plan.out / "cluster-with-all-reduces.yaml")


def _of_calibration(plan: Plan) -> Plan:
    return replace(plan, earlier=None) if plan.calibrate_anew else plan


def _recorded(setup: Setup, strategy: str, folder: str, plan: Plan, run: RunReal) -> Result:
    """Return a run to calibrate on, with the seed before those of the others."""
    experiment = setup.experiment(strategy, plan.seeds[0] - 1, **setup.calibration)
    return _real(experiment, folder, plan, run)[0]


def _calibrated(results: Sequence[Result], file: Path) -> Path:
    folders = [result.folder for result in results if result.folder is not None]
    file.parent.mkdir(parents=True, exist_ok=True)
    write_calibration(calibrate(folders), file, file.with_suffix(".html"))
    return file
