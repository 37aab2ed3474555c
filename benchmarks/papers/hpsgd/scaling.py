"""HPSGD: scaling efficiency, and which cost explains which ratio. See scaling.yaml."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pyarrow.compute as pc
import pyarrow.parquet as pq
from benchmarks.papers.claims import Claim, Verdict
from benchmarks.papers.curves import Curve, curves_of, require_complete
from benchmarks.papers.over_seeds import Spread, all_of

from outpace.experiment.comparison import variants_from
from outpace.record.folder import TRACE

SSGD, LOCAL, HPSGD, PSGD = "SSGD", "Local SGD", "HPSGD", "PSGD"
QUICK = ("repeats=1", "steps=32")

WITHIN: Final = 10  # per cent of SSGD's or Local SGD's pace
PUBLISHED: Final = {4: {SSGD: 133, LOCAL: 0}, 16: {SSGD: 250, LOCAL: 75}}  # per cent more


@dataclass(frozen=True, slots=True)
class Ring:
    """An all-reduce in a ring. scale: factor by which it takes longer than on this network."""

    latency_s: float
    bandwidth_bytes_per_s: float
    scale: float = 1.0

    def seconds(self, workers: int, size_bytes: int) -> float:
        """Return 2(N−1)·(L + m/(N·B)), as in Patarasu and Yuan (2009)."""
        share_s = size_bytes / workers / self.bandwidth_bytes_per_s
        return 2 * (workers - 1) * (self.latency_s + share_s) * self.scale

    def costing(self, seconds: float, workers: int, size_bytes: int) -> Ring:
        """Return a ring that is slower by the factor at which an all-reduce takes `seconds`."""
        scale = self.scale * seconds / self.seconds(workers, size_bytes)
        return Ring(self.latency_s, self.bandwidth_bytes_per_s, scale)

    def network(self) -> dict[str, float]:
        return {
            "latency_s": self.latency_s * self.scale,
            "bandwidth_bytes_per_s": self.bandwidth_bytes_per_s / self.scale,
        }


@dataclass(frozen=True, slots=True)
class Steps:
    """A step of the cost model (section 3.2), in units of a step without communication.

    k: duration of a synchronization. every: steps of Local SGD between two averages, γ + 1.
    """

    k: float
    every: int

    def of(self, strategy: str) -> float:
        """Return 1 + k for SSGD, 1 + k/(γ + 1) for Local SGD, 1 for strategies that never wait."""
        return 1 + {SSGD: self.k, LOCAL: self.k / self.every}.get(strategy, 0.0)

    @property
    def in_a_round(self) -> float:
        """Steps of HPSGD in the time of one round of Local SGD: γ + 1 + k."""
        return self.every + self.k

    @property
    def synchronizations(self) -> float:
        """Synchronizations of HPSGD in that time, if they follow without a gap: (γ + 1)/k + 1."""
        return self.every / self.k + 1


@dataclass(frozen=True, slots=True)
class Found:
    """Results of one strategy, by seed.

    efficiency: steps per second, relative to a worker by itself. waiting: share of the time.
    """

    efficiency: Spread
    waiting: Spread
    mean_window: Spread | None = None  # steps in a synchronization

    def percent_over(self, other: Found) -> Spread:
        return (self.efficiency / other.efficiency - 1) * 100


@dataclass(frozen=True, slots=True)
class Row:
    """Results of all strategies with some number of workers; a synchronization takes k steps."""

    workers: int
    k: float
    every: int
    found: Mapping[str, Found]

    def percent_over(self, other: str) -> Spread:
        """Return by how many per cent HPSGD makes more steps per second than another strategy."""
        return self.found[HPSGD].percent_over(self.found[other])

    @property
    def in_order(self) -> Verdict:
        """True if SSGD < Local SGD < HPSGD <= PSGD in steps per second."""
        ssgd, local, hpsgd, psgd = (
            self.found[name].efficiency for name in (SSGD, LOCAL, HPSGD, PSGD)
        )
        return all_of([ssgd.below(local), local.below(hpsgd), hpsgd.below(psgd * 1.005)])

    @property
    def model(self) -> Steps:
        return Steps(self.k, self.every)


Rows = Mapping[str, Sequence[Row]]  # by model


def run(data: Mapping[str, Any], out: Path) -> list[Claim]:
    """Run all, and judge."""
    ring = Ring(**data["network"])
    largest, fewest = next(iter(data["models"])), min(data["workers"])
    k = ring.seconds(fewest, _bytes(data, largest)) / data["step_s"]
    rows = {
        model: [
            _row(data, model, workers, ring, ring.seconds(fewest, _bytes(data, model)) / k, out)
            for workers in data["workers"]
        ]
        for model in data["models"]
    }
    alone = []
    for ratio in data["ratios"]:
        workers, wanted_s = ratio["workers"], ratio["k"] * data["step_s"]
        dear = ring.costing(wanted_s, workers, _bytes(data, largest))
        place = out / f"k = {ratio['k']:g}"
        alone.append(_row(data, largest, workers, dear, data["step_s"], place))
    together = _together_rows(data, out / "together")
    return [
        *claims(rows),
        *explained(data["ratios"], alone),
        *explained_together(together),
        *cost_model(rows),
    ]


def _bytes(data: Mapping[str, Any], model: str) -> int:
    return 4 * int(data["models"][model])


def _together_rows(data: Mapping[str, Any], out: Path) -> list[Row]:
    """Run the first model with workers that start every step together."""
    model, step_s = next(iter(data["models"])), data["step_s"]
    with_spread = {**data, "spread": data["together"]["spread"]}
    ring = Ring(**data["together"]["network"])
    return [
        _row(with_spread, model, workers, ring, step_s, out, start_together=True)
        for workers in data["workers"]
    ]


def _row(
    data: Mapping[str, Any],
    model: str,
    workers: int,
    ring: Ring,
    step_s: float,
    out: Path,
    *,
    start_together: bool = False,
) -> Row:
    """Run each strategy with each seed, in out/MODEL-WORKERS/seed-SEED."""
    experiment = {
        "seed": data["seed"],
        "task": {"kind": "timing", "parameters": data["models"][model]},
        "workers": workers,
        "compute": {"kind": "lognormal", "mean_s": step_s, "cv": data["spread"]},
        "network": ring.network(),
        "stop": {"iterations": data["steps"]},
        "variants": [
            {"name": SSGD, "sync": {"kind": "ssgd"}},
            {"name": LOCAL, "sync": {"kind": "local-sgd", "every": data["every"]}},
            {"name": HPSGD, "sync": {"kind": "hpsgd", "start_together": start_together}},
            {"name": PSGD, "sync": {"kind": "psgd"}},
        ],
    }
    place = out / f"{model}-{workers}"
    variants = variants_from(experiment, place.name, Path(__file__).parent)
    steps = data["steps"] - data["every"]
    found = {}
    for name, runs in curves_of(variants, place, seeds=data["repeats"]).items():
        require_complete(runs)
        measured = [_measured(run, step_s, steps) for run in runs]
        efficiency, waiting, windows = zip(*measured, strict=True)
        window = None if None in windows else Spread(windows)
        found[name] = Found(Spread(efficiency), Spread(waiting), window)
    return Row(workers, ring.seconds(workers, _bytes(data, model)) / step_s, data["every"], found)


def _measured(run: Curve, step_s: float, steps: int) -> tuple[float, float, float | None]:
    """Read efficiency, share of waiting and mean window of the first steps.

    These are whole rounds of Local SGD without the last one, in which workers synchronize the rest.
    """
    assert run.folder is not None
    table = pq.read_table(run.folder / TRACE, columns=["event", "iteration", "end_ns", "held_ns"])
    is_step = pc.equal(pc.cast(table["event"], "string"), "iteration")
    first = table.filter(pc.and_(is_step, pc.less(table["iteration"], steps)))
    last = first.filter(pc.equal(first["iteration"], steps - 1))
    ended_s = pc.mean(last["end_ns"]).as_py() / 1e9
    held_s = pc.sum(first["held_ns"]).as_py() / 1e9 / len(last)
    return step_s * steps / ended_s, held_s / ended_s, run.summary["mean_window"]


def claims(rows: Rows) -> list[Claim]:
    """Judge the published results for 4 and 16 workers, in one network."""
    found = []
    for workers in PUBLISHED:
        of_all = {
            model: one for model, some in rows.items() for one in some if one.workers == workers
        }
        if not of_all:
            continue
        gains = "; ".join(
            f"{model} (k = {row.k:.2f}) {row.percent_over(SSGD):.1f} and "
            f"{row.percent_over(LOCAL):.1f} %"
            for model, row in of_all.items()
        )
        found.append(
            Claim(
                f"{workers} workers",
                "steps per second: SSGD < Local SGD ≤ HPSGD ≤ PSGD",
                f"HPSGD over SSGD and over Local SGD: {gains}",
                all_of(row.in_order for row in of_all.values()),
            )
        )
    return [*found, *_efficiencies(rows)]


def _efficiencies(rows: Rows) -> list[Claim]:
    """Judge how efficiencies change from few workers to many."""
    workers = ", ".join(str(row.workers) for row in next(iter(rows.values())))
    words = []
    for model, of_model in rows.items():
        each = (
            f"{name} {_listed(row.found[name].efficiency * 100 for row in of_model)}"
            for name in (SSGD, LOCAL, HPSGD)
        )
        words.append(f"{model}: {'; '.join(each)}")
    return [
        Claim(
            "scaling efficiency",
            "falls with the workers, SSGD's most, and hardly for HPSGD",
            f"per cent of so many workers by themselves, {workers}:\n" + "\n".join(words),
            all_of(
                [
                    *(
                        many.found[name].efficiency.below(few.found[name].efficiency)
                        for of_model in rows.values()
                        for few, many in pairwise(of_model)
                        for name in (SSGD, LOCAL)
                    ),
                    *(
                        _kept(of_model, SSGD).below(_kept(of_model, LOCAL))
                        for of_model in rows.values()
                    ),
                    *(
                        row.found[HPSGD].efficiency.mean > 0.95
                        for some in rows.values()
                        for row in some
                    ),
                ]
            ),
            margin="HPSGD above 95 %",
        ),
        Claim(
            "4 to 16 workers",
            "HPSGD's lead over SSGD and over Local SGD grows with the workers",
            "; ".join(
                f"{model}: {_listed(row.percent_over(SSGD) for row in of_model)} % and "
                f"{_listed(row.percent_over(LOCAL) for row in of_model)} %"
                for model, of_model in rows.items()
            ),
            all_of(
                few.percent_over(name).below(many.percent_over(name))
                for of_model in rows.values()
                for few, many in pairwise(of_model)
                for name in (SSGD, LOCAL)
            ),
        ),
    ]


def explained(ratios: Sequence[Mapping[str, Any]], rows: Sequence[Row]) -> list[Claim]:
    """Judge both ratios of one number of workers at the cost that is chosen for one of them."""
    found = []
    for ratio, row in zip(ratios, rows, strict=True):
        than, percent = ratio["than"], ratio["percent"]
        (other,) = {SSGD, LOCAL} - {than}
        said = PUBLISHED[row.workers][other]
        found.append(
            Claim(
                f"{row.workers} workers, k = {row.k:.2f}, chosen for {than}",
                f"HPSGD {percent} % over {than} and {said} % over {other}",
                f"{row.percent_over(than):.1f} % over {than} and "
                f"{row.percent_over(other):.1f} % over {other}",
                row.percent_over(than).near(percent, WITHIN)
                and row.percent_over(other).near(said, WITHIN),
                margin=f"± {WITHIN} %, both",
            )
        )
    return found


def explained_together(rows: Sequence[Row]) -> list[Claim]:
    """Judge how much the common start of steps explains, with one cost and one spread for all."""
    found = [
        Claim(
            f"start together, {row.workers} workers, k = {row.k:.2f}",
            " and ".join(f"{percent} % over {than}" for than, percent in said.items()),
            " and ".join(f"{row.percent_over(than):.1f} % over {than}" for than in said),
            all(row.percent_over(than).near(percent, WITHIN) for than, percent in said.items()),
            margin=f"± {WITHIN} %",
        )
        for row in rows
        if (said := PUBLISHED.get(row.workers)) is not None
    ]
    return [*found, _loss(rows)]


def _loss(rows: Sequence[Row]) -> Claim:
    """Judge the efficiency that HPSGD loses with more workers, and the causes."""
    kept = {name: _kept(rows, name) for name in (HPSGD, LOCAL, SSGD)}
    # share of the time that HPSGD takes longer than workers by themselves
    waiting = [
        row.found[HPSGD].waiting
        / (row.found[HPSGD].efficiency / row.found[PSGD].efficiency * -1 + 1)
        for row in rows
    ]
    workers = ", ".join(str(row.workers) for row in rows)
    efficiencies = _listed(row.found[HPSGD].efficiency * 100 for row in rows)
    falls = (
        many.found[HPSGD].efficiency.below(few.found[HPSGD].efficiency)
        for few, many in pairwise(rows)
    )
    return Claim(
        "start together, scaling efficiency",
        "HPSGD loses efficiency with more workers, less than other methods, mainly by waiting for "
        "slower workers",
        f"HPSGD with {workers} workers: {efficiencies} % of so many by themselves; of that loss, "
        f"waiting is {_listed(share * 100 for share in waiting)} %. From {rows[0].workers} to "
        f"{rows[-1].workers} workers "
        + ", ".join(f"{name} keeps {share * 100:.1f} %" for name, share in kept.items()),
        all_of(
            [
                *falls,
                *(kept[name].below(kept[HPSGD]) for name in (LOCAL, SSGD)),
                *(share.mean >= 0.5 for share in waiting),
            ]
        ),
        margin="waiting is at least half of the loss",
    )


def _kept(rows: Sequence[Row], name: str) -> Spread:
    """Return the efficiency with the most workers, relative to the efficiency with the fewest."""
    return rows[-1].found[name].efficiency / rows[0].found[name].efficiency


def _listed(values: Iterable[Spread]) -> str:
    return ", ".join(f"{value:.1f}" for value in values)


def cost_model(rows: Rows) -> list[Claim]:
    """Judge section 3.2 in closed form: steps, and synchronizations of HPSGD."""
    all_rows = [row for of_model in rows.values() for row in of_model]
    apart = {
        name: max(abs(row.found[name].efficiency.mean * row.model.of(name) - 1) for row in all_rows)
        for name in (SSGD, LOCAL, HPSGD)
    }
    within = 0.05
    rounds = {}  # by k, to one digit
    for row in sorted(all_rows, key=lambda row: row.k):
        of_hpsgd = row.found[HPSGD]
        assert of_hpsgd.mean_window is not None
        steps = row.model.in_a_round * of_hpsgd.efficiency.mean
        rounds[round(row.k, 1)] = row.model, steps, steps / of_hpsgd.mean_window.mean
    return [
        Claim(
            "section 3.2, steps",
            "a step takes SSGD 1 + k, Local SGD 1 + k/(γ + 1), HPSGD 1",
            "apart by "
            + ", ".join(f"{100 * most:.1f} % ({name})" for name, most in apart.items())
            + " at most, of which the wait for the slowest",
            max(apart.values()) <= within,
            margin=f"each within {within:.0%}",
        ),
        Claim(
            "section 3.2, a round",
            "while Local SGD averages once, HPSGD takes γ + k + 1 steps",
            "; ".join(
                f"k = {model.k:.2f}: {steps:.1f} ({model.in_a_round:.1f})"
                for model, steps, _ in rounds.values()
            ),
            all(abs(steps / model.in_a_round - 1) <= within for model, steps, _ in rounds.values()),
            margin=f"each within {within:.0%}",
        ),
        Claim(
            "section 3.2, a round",
            "and synchronizes (γ + 1)/k + 1 times",
            "; ".join(
                f"k = {model.k:.2f}: {often:.1f} ({model.synchronizations:.1f})"
                for model, _, often in rounds.values()
            )
            + ". Fewer: one begins at the end of a step, so there is one in every ⌈k⌉ or more",
            all(
                abs(often / model.synchronizations - 1) <= within
                for model, _, often in rounds.values()
            ),
            margin=f"each within {within:.0%}",
        ),
    ]
