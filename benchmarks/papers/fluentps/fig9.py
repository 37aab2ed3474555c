"""FluentPS, figure 9: PSSP and SSP of the same regret bound. See fig9.yaml."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.papers.claims import Claim
from benchmarks.papers.curves import Curve
from benchmarks.papers.pace import Pace, listed, pace, percent_less

from outpace.config.experiment import Experiment
from outpace.sync.policies.pssp import Pssp
from outpace.sync.policies.ssp import Ssp
from outpace.sync.theory import equivalent_staleness

PAIRS = (("A", "B"), ("C", "D"), ("E", "F"), ("G", "H"))  # PSSP and SSP
FIGURES = {
    f"figure-9-{buffer}": [f"{buffer} {model}" for pair in PAIRS for model in pair]
    for buffer in ("soft", "lazy")
}
ALIKE = 0.015  # of accuracies


def claims(curves: Mapping[str, Curve], experiments: Mapping[str, Experiment]) -> list[Claim]:
    """Judge the paper's claims about its figure by these runs."""
    paces = {name: pace(curve) for name, curve in curves.items()}
    soft, lazy = (
        [(paces[f"{buffer} {a}"], paces[f"{buffer} {b}"]) for a, b in PAIRS]
        for buffer in ("soft", "lazy")
    )
    return [_same_bound(experiments), *_soft(soft), *_lazy(soft, lazy), _accuracy(paces)]


def _same_bound(experiments: Mapping[str, Experiment]) -> Claim:
    pairs = []
    for a, b in PAIRS:
        pssp, ssp = experiments[f"soft {a}"].sync, experiments[f"soft {b}"].sync
        assert isinstance(pssp, Pssp)
        assert isinstance(ssp, Ssp)
        same = equivalent_staleness(pssp.staleness, pssp.block_probability)
        pairs.append((same, ssp.staleness))
    return Claim(
        "theorem 1",
        "PSSP(s, c) has the regret bound of SSP(s + 1/c − 1)",
        f"equivalent staleness {listed([same for same, _ in pairs], 2)}; "
        f"here {listed([s for _, s in pairs], 0)}",
        all(abs(same - s) < 1e-6 for same, s in pairs),
    )


def _soft(pairs: list[tuple[Pace, Pace]]) -> list[Claim]:
    delayed, seconds = _saved(pairs)
    return [
        Claim(
            "figure 9, soft",
            "PSSP delays fewer pulls than SSP: up to 97.1 % less, in the pair G, H",
            f"{_delays(pairs)}: {listed(delayed)} % less",
            min(delayed) > 20 and max(delayed) > 70,
            margin="above 20 % in each pair, above 70 % in one",
        ),
        Claim(
            "figure 9, soft",
            "PSSP takes up to 28.5 % less time",
            f"{listed(seconds)} % less",
            min(seconds) > 5 and max(seconds) > 15,
            margin="above 5 % in each pair, above 15 % in one",
        ),
    ]


def _lazy(soft: list[tuple[Pace, Pace]], lazy: list[tuple[Pace, Pace]]) -> list[Claim]:
    delayed, _ = _saved(lazy)
    speedups = [b.faster_than(a) for a, b in zip(_all(soft), _all(lazy), strict=True)]
    fewer = [
        percent_less(b.delayed, a.delayed) for a, b in zip(_all(soft), _all(lazy), strict=True)
    ]
    return [
        Claim(
            "figure 9",
            "lazy is up to 1.24 times faster than soft, with up to 97.1 % fewer delayed pulls",
            f"A to H: {listed(speedups, 2)} times, {listed(fewer, 0)} % fewer",
            max(speedups) > 1.12 and max(fewer) > 70,
            margin="above 1.12 times in one, above 70 % in one",
        ),
        Claim(
            "figure 9",
            "PSSP is sometimes faster with soft than with lazy",
            f"A, C, E, G: {listed(speedups[::2], 2)} times",
            min(speedups[::2]) < 0.98,
            margin="below 0.98 times in one",
        ),
        Claim(
            "figure 9, lazy",
            "PSSP delays up to 70.7 % fewer pulls than SSP",
            f"{_delays(lazy)}: {listed(delayed)} % less",
            max(delayed) > 35,
            margin="above 35 % in one pair",
        ),
        Claim(
            "why (not in the paper)",
            "with lazy execution it cannot: a lead grows by at most one per own "
            "iteration, so PSSP(s, c) holds a worker on average at a lead of at most "
            "s + 1/c − 1 = s', no later than SSP(s'), and each time all of the lead is gone",
            f"{_delays(lazy)}: PSSP delays more in each pair",
            all(a.delayed > b.delayed for a, b in lazy),
        ),
    ]


def _accuracy(paces: Mapping[str, Pace]) -> Claim:
    values = [pace.accuracy for pace in paces.values()]
    return Claim(
        "figure 9",
        "equal bounds: the accuracies are alike",
        f"{min(values):.3f} to {max(values):.3f}",
        max(values) - min(values) < ALIKE,
        margin=f"within {ALIKE}",
    )


def _saved(pairs: list[tuple[Pace, Pace]]) -> tuple[list[float], list[float]]:
    """Return the per cent of delayed pulls and of time that PSSP saves."""
    return (
        [percent_less(pssp.delayed, ssp.delayed) for pssp, ssp in pairs],
        [percent_less(pssp.seconds, ssp.seconds) for pssp, ssp in pairs],
    )


def _all(pairs: list[tuple[Pace, Pace]]) -> list[Pace]:
    return [one for pair in pairs for one in pair]


def _delays(pairs: list[tuple[Pace, Pace]]) -> str:
    return "; ".join(f"{a.delayed:.0f} against {b.delayed:.0f}" for a, b in pairs)
