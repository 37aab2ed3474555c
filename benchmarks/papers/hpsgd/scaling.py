"""HPSGD: scaling efficiency, and which cost explains which ratio. See scaling.yaml."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, Final

import pyarrow.compute as pc
from benchmarks.papers.claims import Claim, Verdict
from benchmarks.papers.curves import Curve, Curves, Experiments, of_case, require_complete
from benchmarks.papers.over_seeds import Spread, all_of, over_seeds
from benchmarks.papers.pace import listed

SSGD, LOCAL, HPSGD, PSGD = "SSGD", "Local SGD", "HPSGD", "PSGD"
QUICK = ("seeds=1", "stop.iterations=32")

WORKERS: Final = (4, 8, 12, 16)
WITHIN: Final = 10  # per cent of SSGD's or Local SGD's pace
APART: Final = 0.05  # of the cost model
PUBLISHED: Final = {4: {SSGD: 133, LOCAL: 0}, 16: {SSGD: 250, LOCAL: 75}}  # per cent more
# Cases of a number of workers, and the strategy whose published ratio their cost explains.
COSTS: Final = {
    "4 workers": SSGD,
    "cheap, 4 workers": LOCAL,
    "16 workers": SSGD,
    "dear, 16 workers": LOCAL,
}


@dataclass(frozen=True, slots=True)
class Row:
    """Results of all strategies with some number of workers, over the seeds.

    Attributes:
        k: duration of a synchronization in a ring, in steps.
        every: steps of Local SGD between two averages, γ + 1 in the paper's cost model.
        efficiency: steps per second, relative to a worker by itself; by strategy.
        waiting: share of HPSGD's time.
        window: steps in a synchronization of HPSGD.
    """

    workers: int
    k: float
    every: int
    efficiency: Mapping[str, Spread]
    waiting: Spread
    window: Spread

    @classmethod
    def of(cls, case: str, curves: Curves, experiments: Experiments) -> Row:
        """Measure whole rounds of Local SGD, without the last: it synchronizes the rest."""
        runs, local = of_case(curves, case), experiments[f"{case} {LOCAL}"]
        for of_strategy in runs.values():
            require_complete(of_strategy)
        every, step_s = local.sync.every, local.compute.mean_s
        steps = local.stop.iterations - every
        seconds = {name: over_seeds(some, partial(ended_s, steps)) for name, some in runs.items()}
        return cls(
            local.workers,
            all_reduce_s(local) / step_s,
            every,
            {name: step_s * steps / each for name, each in seconds.items()},
            over_seeds(runs[HPSGD], partial(waited_s, steps)) / seconds[HPSGD],
            over_seeds(runs[HPSGD], lambda run: run.summary["mean_window"]),
        )

    def percent_over(self, other: str) -> Spread:
        """Return by how many per cent HPSGD makes more steps per second than another strategy."""
        return (self.efficiency[HPSGD] / self.efficiency[other] - 1) * 100

    def over(self, *others: str) -> str:
        """Write `percent_over` of other strategies."""
        return " and ".join(f"{self.percent_over(name):.1f} % over {name}" for name in others)

    @property
    def reaches_both(self) -> bool:
        """True if both published ratios are reached."""
        said = PUBLISHED[self.workers]
        return all(self.percent_over(than).near(said[than], WITHIN) for than in said)

    @property
    def in_order(self) -> Verdict:
        """True if SSGD < Local SGD < HPSGD <= PSGD in steps per second."""
        ssgd, local, hpsgd, psgd = (self.efficiency[name] for name in (SSGD, LOCAL, HPSGD, PSGD))
        return all_of([ssgd.below(local), local.below(hpsgd), hpsgd.below(psgd * 1.005)])

    def step(self, strategy: str) -> float:
        """Return the cost model's step (section 3.2), in steps without communication.

        1 + k for SSGD, 1 + k/(γ + 1) for Local SGD, 1 for strategies that never wait.
        """
        return 1 + {SSGD: self.k, LOCAL: self.k / self.every}.get(strategy, 0.0)

    @property
    def in_a_round(self) -> tuple[float, float]:
        """Steps of HPSGD in the time of one round of Local SGD: measured, and γ + 1 + k."""
        model = self.every + self.k
        return model * self.efficiency[HPSGD].mean, model

    @property
    def synchronizations(self) -> tuple[float, float]:
        """Synchronizations of HPSGD in that time: measured, and (γ + 1)/k + 1 without gaps."""
        return self.in_a_round[0] / self.window.mean, self.every / self.k + 1


Rows = Sequence[Row]  # by the number of workers


def all_reduce_s(experiment: Any) -> float:
    """Return 2(N−1)·(L + m/(N·B)), the time of a ring, as in Patarasu and Yuan (2009)."""
    network, workers = experiment.network, experiment.workers
    share_s = 4 * experiment.task.parameters / workers / network.bandwidth_bytes_per_s
    return 2 * (workers - 1) * (network.latency_s + share_s)


def ended_s(steps: int, run: Curve) -> float:
    """Return the mean time at which a worker has made this many steps."""
    made = run.trace("iteration", ["iteration", "end_ns"])
    last = made.filter(pc.equal(made["iteration"], steps - 1))
    return pc.mean(last["end_ns"]).as_py() / 1e9


def waited_s(steps: int, run: Curve) -> float:
    """Return the mean seconds that a worker waits in this many steps."""
    made = run.trace("iteration", ["iteration", "held_ns"])
    first = made.filter(pc.less(made["iteration"], steps))
    return pc.sum(first["held_ns"]).as_py() / 1e9 / run.workers


def claims(curves: Curves, experiments: Experiments) -> list[Claim]:
    """Judge scaling in one network, with other costs, and if the steps begin together."""

    def row(case: str) -> Row:
        return Row.of(case, curves, experiments)

    rows = [row(f"{workers} workers") for workers in WORKERS]
    together = [row(f"together, {workers} workers") for workers in WORKERS]
    return [
        *_order(rows),
        *_efficiencies(rows),
        *(_explained(row(case), than) for case, than in COSTS.items()),
        *_together(together),
        _loss(together),
        *_cost_model(rows),
    ]


def _order(rows: Rows) -> list[Claim]:
    return [
        Claim(
            f"{row.workers} workers",
            "steps per second: SSGD < Local SGD ≤ HPSGD ≤ PSGD",
            f"k = {row.k:.2f}, HPSGD {row.over(SSGD, LOCAL)}",
            row.in_order,
        )
        for row in rows
        if row.workers in PUBLISHED
    ]


def _efficiencies(rows: Rows) -> list[Claim]:
    """Judge how efficiencies change from few workers to many."""
    return [
        Claim(
            "scaling efficiency",
            "falls with the workers, SSGD's most, and hardly for HPSGD",
            f"per cent of so many workers by themselves, {listed(WORKERS, 0)}: "
            + "; ".join(f"{name} {_percent(rows, name)}" for name in (SSGD, LOCAL, HPSGD)),
            all_of(
                [
                    _falls(rows, SSGD),
                    _falls(rows, LOCAL),
                    _kept(rows, SSGD).below(_kept(rows, LOCAL)),
                    *(row.efficiency[HPSGD].mean > 0.95 for row in rows),
                ]
            ),
            margin="HPSGD above 95 %",
        ),
        Claim(
            "4 to 16 workers",
            "HPSGD's lead over SSGD and over Local SGD grows with the workers",
            " and ".join(
                f"{listed(row.percent_over(name) for row in rows)} %" for name in (SSGD, LOCAL)
            ),
            all_of(
                few.percent_over(name).below(many.percent_over(name))
                for few, many in pairwise(rows)
                for name in (SSGD, LOCAL)
            ),
        ),
    ]


def _explained(row: Row, than: str) -> Claim:
    """Judge both ratios of one number of workers at the cost that is chosen for one of them."""
    (other,) = {SSGD, LOCAL} - {than}
    said = PUBLISHED[row.workers]
    return Claim(
        f"{row.workers} workers, k = {row.k:.2f}, chosen for {than}",
        f"HPSGD {said[than]} % over {than} and {said[other]} % over {other}",
        row.over(than, other),
        row.reaches_both,
        margin=f"± {WITHIN} %, both",
    )


def _together(rows: Rows) -> list[Claim]:
    """Judge how much the common start of steps explains, with one cost and one spread for all."""
    return [
        Claim(
            f"start together, {row.workers} workers, k = {row.k:.2f}",
            " and ".join(f"{percent} % over {than}" for than, percent in said.items()),
            row.over(SSGD, LOCAL),
            row.reaches_both,
            margin=f"± {WITHIN} %",
        )
        for row in rows
        if (said := PUBLISHED.get(row.workers)) is not None
    ]


def _loss(rows: Rows) -> Claim:
    """Judge the efficiency that HPSGD loses with more workers, and the causes."""
    kept = {name: _kept(rows, name) for name in (HPSGD, LOCAL, SSGD)}
    # share of the time that HPSGD takes longer than workers by themselves
    waiting = [row.waiting / (1 - row.efficiency[HPSGD] / row.efficiency[PSGD]) for row in rows]
    return Claim(
        "start together, scaling efficiency",
        "HPSGD loses efficiency with more workers, less than other methods, mainly by waiting for "
        "slower workers",
        f"HPSGD with {listed(WORKERS, 0)} workers: {_percent(rows, HPSGD)} % of so many by "
        f"themselves; of that loss, waiting is {listed(share * 100 for share in waiting)} %. From "
        f"{WORKERS[0]} to {WORKERS[-1]} workers "
        + ", ".join(f"{name} keeps {share * 100:.1f} %" for name, share in kept.items()),
        all_of(
            [
                _falls(rows, HPSGD),
                *(kept[name].below(kept[HPSGD]) for name in (LOCAL, SSGD)),
                *(share.mean >= 0.5 for share in waiting),
            ]
        ),
        margin="waiting is at least half of the loss",
    )


def _percent(rows: Rows, name: str) -> str:
    return listed(row.efficiency[name] * 100 for row in rows)


def _falls(rows: Rows, name: str) -> Verdict:
    """Return whether the efficiency of a strategy falls with the workers."""
    return all_of(many.efficiency[name].below(few.efficiency[name]) for few, many in pairwise(rows))


def _kept(rows: Rows, name: str) -> Spread:
    """Return the efficiency with the most workers, relative to the efficiency with the fewest."""
    return rows[-1].efficiency[name] / rows[0].efficiency[name]


def _cost_model(rows: Rows) -> list[Claim]:
    """Judge section 3.2 in closed form: steps, and synchronizations of HPSGD."""
    apart = {
        name: max(abs(row.efficiency[name].mean * row.step(name) - 1) for row in rows)
        for name in (SSGD, LOCAL, HPSGD)
    }

    def in_a_round(
        published: str, quantity: Mapping[float, tuple[float, float]], why: str
    ) -> Claim:
        return Claim(
            "section 3.2, a round",
            published,
            "; ".join(
                f"k = {k:.2f}: {found:.1f} ({model:.1f})" for k, (found, model) in quantity.items()
            )
            + why,
            all(abs(found / model - 1) <= APART for found, model in quantity.values()),
            margin=f"each within {APART:.0%}",
        )

    return [
        Claim(
            "section 3.2, steps",
            "a step takes SSGD 1 + k, Local SGD 1 + k/(γ + 1), HPSGD 1",
            "apart by "
            + ", ".join(f"{100 * most:.1f} % ({name})" for name, most in apart.items())
            + " at most, of which the wait for the slowest",
            max(apart.values()) <= APART,
            margin=f"each within {APART:.0%}",
        ),
        in_a_round(
            "while Local SGD averages once, HPSGD takes γ + k + 1 steps",
            {row.k: row.in_a_round for row in rows},
            "",
        ),
        in_a_round(
            "and synchronizes (γ + 1)/k + 1 times",
            {row.k: row.synchronizations for row in rows},
            ". Fewer: one begins at the end of a step, so there is one in every ⌈k⌉ or more",
        ),
    ]
