"""The fit of run times that switch between a fast and a slow regime.

The law is `regimes` with two regimes. The regime at the start of an iteration is hidden; it changes
between two starts, Δ apart, as a Markov chain in continuous time with rates a = 1/dwell of the fast
regime and b = 1/dwell of the slow one does: P(fast to slow) = a/(a + b) · (1 - exp(-(a + b) Δ)).
The likelihood of the times is that of a hidden Markov model (Baum et al., A maximization technique
occurring in the statistical analysis of probabilistic functions of Markov chains, Annals of
Mathematical Statistics 41, 1970): a product of one 2 x 2 matrix per iteration, here multiplied in
pairs, so that torch has the gradient of all parameters after log2(T) products. L-BFGS-B maximises
it from the most likely of several starts. Bursts are the same with a short slow regime.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import scipy.optimize
import torch

from outpace.cluster.calibration import Floats
from outpace.cluster.calibration.factors import shrunk_factors
from outpace.cluster.regimes import Regime, Regimes

_MOST: Final = 30_000  # run times that are used
_LEAST_FACTOR: Final = 1.1  # between the regimes; less is not worth a regime
_LEAST_SHARE: Final = 0.002  # of the iterations, in each regime
_STARTS: Final = (0.5, 0.85, 0.97)  # quantiles that may divide fast from slow
_STEPS: Final = 80  # of the optimizer
_SHARED: Final = 5  # parameters that all workers have in common


@dataclass(frozen=True, slots=True)
class SwitchingFit:
    """A law with two regimes; `bic` as for independent times."""

    law: Regimes
    bic: float


def switching_fit(sequences: list[tuple[Floats, Floats]]) -> SwitchingFit | None:
    """Return the best law with two regimes and a factor for each worker; None if there is none.

    Args:
        sequences: For each recorded run: when iterations started, and run times, both of shape
            (T, N) and in s; NaN where a worker was not there.
    """
    data = _Data.of(sequences)
    if data is None:
        return None
    starts = [start for quantile in _STARTS if (start := data.start(quantile)) is not None]
    if not starts:
        return None
    start = min(starts, key=lambda start: data.loss(start)[0])
    loss, values = data.best(start)
    law, parameters = data.law(values)
    bic = parameters * math.log(data.count) + 2 * loss * data.count
    fast, slow = law.regimes
    share = slow.dwell_s / (slow.dwell_s + slow.factor * fast.dwell_s)  # of the iterations
    if slow.factor < _LEAST_FACTOR or not _LEAST_SHARE < share < 1 - _LEAST_SHARE:
        return None
    return SwitchingFit(law, bic)


@dataclass(frozen=True, slots=True, eq=False)
class _Data:
    """Sequences of equal length, padded at the end.

    Args:
        logs: Logarithms of the run times, shape (S, T).
        known: True where there is one.
        gaps: Seconds since the start of the iteration before, shape (S, T); the first is 0.
        worker: Shape (S,).
        level: The logarithm of a typical time of each worker, shape (N,).
    """

    logs: torch.Tensor
    known: torch.Tensor
    gaps: torch.Tensor
    worker: torch.Tensor
    level: Floats
    count: int

    @staticmethod
    def of(sequences: list[tuple[Floats, Floats]]) -> _Data | None:
        columns, worker = [], []
        per_column = max(20, _MOST // sum(times.shape[1] for _, times in sequences))
        for starts, times in sequences:
            for n in range(times.shape[1]):
                there = np.flatnonzero(~np.isnan(times[:, n]) & ~np.isnan(starts[:, n]))
                there = there[:per_column]
                if len(there):
                    columns.append((starts[there, n], np.log(times[there, n])))
                    worker.append(n)
        if not columns:
            return None
        length = 1 << (max(len(logs) for _, logs in columns) - 1).bit_length()
        shape = len(columns), length
        logs, gaps, known = np.zeros(shape), np.zeros(shape), np.zeros(shape, np.bool_)
        for row, (starts, values) in enumerate(columns):
            logs[row, : len(values)], known[row, : len(values)] = values, True
            gaps[row, 1 : len(values)] = np.maximum(np.diff(starts), 0.0)
        workers = max(worker) + 1
        of = np.array(worker)
        level = np.array([np.median(logs[of == n][known[of == n]]) for n in range(workers)])
        return _Data(
            torch.from_numpy(logs),
            torch.from_numpy(known),
            torch.from_numpy(gaps),
            torch.from_numpy(of),
            level,
            int(known.sum()),
        )

    def start(self, quantile: float) -> Floats | None:
        """Return parameters to start from: times above the quantile are slow.

        They are: mean log of the fast times, ln of the factor, ln of the standard deviation of the
        logarithm, ln of both dwell times, and one offset per worker but the first.
        """
        logs, known, gaps = self.logs.numpy(), self.known.numpy(), self.gaps.numpy()
        rest = logs - self.level[self.worker.numpy()][:, None]
        # Two means: the border moves to the middle between them.
        border = float(np.quantile(rest[known], quantile))
        for _ in range(10):
            slow = known & (rest > border)
            fast = known & ~slow
            if slow.sum() < 3 or fast.sum() < 3:
                return None
            border = (float(rest[slow].mean()) + float(rest[fast].mean())) / 2
        factor = float(rest[slow].mean() - rest[fast].mean())
        spread = math.sqrt(
            (rest[slow].var() * slow.sum() + rest[fast].var() * fast.sum()) / self.count
        )
        switches = max(1, int((slow[:, 1:] & fast[:, :-1]).sum()))
        typical = float(gaps[gaps > 0].mean()) if (gaps > 0).any() else 1.0
        dwell = [math.log(max(where.sum() * typical / switches, typical)) for where in (fast, slow)]
        level = float(self.level.mean())
        values = [level, max(factor, 0.15), math.log(max(spread, 1e-3)), *dwell]
        low, high = np.array(self.bounds()[: len(values)]).T
        return np.concatenate([np.clip(values, low, high), self.level[1:] - level])

    def best(self, start: Floats) -> tuple[float, Floats]:
        """Return the smallest loss, and its parameters."""
        options = {"maxiter": _STEPS, "ftol": 1e-8}
        found = scipy.optimize.minimize(
            self.loss, start, jac=True, method="L-BFGS-B", bounds=self.bounds(), options=options
        )
        return float(found.fun), found.x

    def bounds(self) -> list[tuple[float, float]]:
        """Return the limits of the parameters."""
        gaps = self.gaps.numpy()
        gaps = gaps[gaps > 0]
        typical = math.log(gaps.mean()) if len(gaps) else 0.0
        dwell = typical - math.log(10), typical + math.log(10 * self.count)
        level = float(self.level.min()) - 5, float(self.level.max()) + 5
        offsets = [(-5.0, 5.0)] * (len(self.level) - 1)
        return [level, (0.05, 7.0), (math.log(1e-4), 1.0), dwell, dwell, *offsets]

    def loss(self, values: Floats) -> tuple[float, Floats]:
        """Return -ln L per run time, and its gradient."""
        given = torch.tensor(values, requires_grad=True)
        level, factor, spread, fast, slow = given[:_SHARED].unbind()
        offsets = torch.cat([-given[_SHARED:].sum().reshape(1), given[_SHARED:]])[self.worker]
        rest = self.logs - level - offsets[:, None]
        states = torch.stack([torch.zeros_like(factor), factor])
        scaled = (rest[..., None] - states) / spread.exp()
        emitted = -0.5 * scaled**2 - spread - 0.5 * math.log(2 * math.pi) - self.logs[..., None]
        emitted = torch.where(self.known[..., None], emitted, 0.0)
        rates = torch.stack([(-fast).exp(), (-slow).exp()])
        share = rates / rates.sum()  # of a switch to slow, to fast
        decayed = torch.exp(-rates.sum() * self.gaps)
        to_slow, to_fast = share[0] * (1 - decayed), share[1] * (1 - decayed)
        # Without a start before, the regime is drawn from the stationary law: equal rows.
        is_first = torch.zeros_like(self.known)
        is_first[:, 0] = True
        to_slow = torch.where(is_first, share[0], to_slow)
        to_fast = torch.where(is_first, share[1], to_fast)
        most = emitted.max(-1).values
        fast_likely, slow_likely = torch.exp(emitted - most[..., None]).unbind(-1)
        one, zero = torch.ones(()), torch.zeros(())
        matrices = [
            torch.where(self.known, (1 - to_slow) * fast_likely, one),
            torch.where(self.known, to_slow * slow_likely, zero),
            torch.where(self.known, to_fast * fast_likely, zero),
            torch.where(self.known, (1 - to_fast) * slow_likely, one),
        ]
        loss = -(most.sum() + _log_product(matrices)) / self.count
        loss.backward()  # type: ignore[no-untyped-call]
        assert given.grad is not None
        return float(loss.detach()), given.grad.numpy().astype(np.float64)

    def law(self, values: Floats) -> tuple[Regimes, float]:
        """Return the law with these parameters, and their effective number."""
        level, factor, spread, fast, slow = (float(value) for value in values[:_SHARED])
        variance = math.exp(2 * spread)
        levels = level + np.concatenate([[-values[_SHARED:].sum()], values[_SHARED:]])
        counts = np.bincount(self.worker.numpy(), self.known.sum(dim=1).numpy())
        factors = shrunk_factors(levels, math.exp(spread) / np.sqrt(counts))
        law = Regimes(
            mean_s=float(np.exp(levels).mean()) * math.exp(variance / 2),
            cv=math.sqrt(math.expm1(variance)),
            factors=factors.rounded,
            regimes=(
                Regime(1.0, math.exp(fast)),
                Regime(math.exp(factor), math.exp(slow)),
            ),
        )
        return law, _SHARED + factors.parameters


def _log_product(matrices: list[torch.Tensor]) -> torch.Tensor:
    """Return the sum over rows of ln of the product of the 2 x 2 matrices in a row.

    The first matrix of each row has equal rows, so the product has, too: their sum is meant.

    Args:
        matrices: The four entries by rows, each of shape (S, T) with T a power of 2.
    """
    a, b, c, d = matrices
    logs = torch.zeros((), dtype=a.dtype)
    while a.shape[1] > 1:
        # Not torch.matmul, which is slow for many small matrices.
        (a, e), (b, f), (c, g), (d, h) = ((m[:, 0::2], m[:, 1::2]) for m in (a, b, c, d))
        a, b, c, d = a * e + b * g, a * f + b * h, c * e + d * g, c * f + d * h
        size = a + b + c + d
        a, b, c, d = a / size, b / size, c / size, d / size
        logs = logs + size.log().sum()
    return logs + (a + b)[:, 0].log().sum()
