"""The promises of a strategy without servers, checked by small runs in virtual time."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

import torch

from outpace.optim import Sgd
from outpace.sync import PeerStrategy
from outpace.sync.python import peers_from
from outpace.testing.peer_runs import PeerRun
from outpace.testing.promises import no_error, require

_STEP_S: Final = 0.01
_SLOWNESS: Final = ((1, 3, 2), (2, 2, 2), (5, 1, 1))  # by worker, for its consecutive iterations


def check_strategy(strategy: PeerStrategy, *, workers: int = 3, iterations: int = 12) -> None:
    """Check that a strategy without servers keeps the promises of all such strategies.

    Every worker runs each of its iterations once. A worker that stops early does not hold up the
    others. The same seed gives the same result. The program uses the kinds of parameters that the
    class announces. Workers that compute the same gradients take the same steps as a single worker.

        check_strategy(LocalSgd(every=5))

    Args:
        strategy: an object of a class that derives from `outpace.sync.PeerStrategy`.
        workers: number of workers, at least 2.
        iterations: number of iterations of each worker, at least 2.

    Raises:
        AssertionError: for the first promise that is broken.
        ConfigError: if the object is not a strategy without servers.
        ValueError: if the strategy refuses this number of workers.
    """
    name = type(strategy).__name__
    peers_from(strategy, name)  # refuses an object that is not a strategy
    strategy = strategy.for_workers(workers)
    if refused := list(strategy.problems(workers)):
        raise ValueError(f"{name} refuses a run of {workers} workers: {'; '.join(refused)}")
    case = f"{name}: {workers} workers, {iterations} iterations"
    table = [
        [_STEP_S * _SLOWNESS[worker % 3][n % 3] for n in range(iterations)]
        for worker in range(workers)
    ]

    def ended(**options: Any) -> PeerRun:
        remedy = "take each iteration of `iterations(me, ...)`, and await no worker that has left"
        with no_error("a run comes to its end", case, remedy):
            return PeerRun(strategy, table, **options)

    run, early = ended(), iterations // 3
    _require_iterations(run, dict.fromkeys(range(workers), iterations), case)
    expected = {worker: early if worker == 1 else iterations for worker in range(workers)}
    _require_iterations(ended(lasts={1: early}), expected, f"{case}; worker 1 stops after {early}")
    # Among pairs that are formed at the same time, one is formed first.
    for tie_seed in (None,) if strategy.exchanges else (None, 0, 1, 2):
        again = ended(tie_seed=tie_seed)
        require(
            torch.equal(run.parameters, again.parameters) and run.now == again.now,
            "one seed has one result",
            f"{case}; events at equal times in another order (tie_seed={tie_seed})",
            "take time and randomness from `me` alone, and keep no state in the class",
        )
    announced = {
        "common": strategy.has_common,
        "own": strategy.has_own,
        "begin_exchange": strategy.exchanges,
    }
    asked = {method: method in run.asked for method in announced}
    require(
        asked == announced,
        "a program asks for what its class announces: "
        f"the class announces {announced}, the program called {asked}",
        case,
        "set has_common, has_own and exchanges to what `train` uses",
    )
    _check_equal_workers(strategy, workers, iterations, case)


def _require_iterations(run: PeerRun, expected: dict[int, int], case: str) -> None:
    rows = run.rows("iteration")
    found = Counter((row["worker"], row["iteration"]) for row in rows)
    require(
        found == Counter((worker, n) for worker, last in expected.items() for n in range(last))
        and all(row["end_ns"] >= row["computed_ns"] for row in rows),
        "every worker runs each of its iterations once: "
        f"expected {expected} by worker, found {dict(Counter(worker for worker, _ in found))}",
        case,
        "let train take every iteration of `iterations(me, ...)` until me.must_stop",
    )


def _check_equal_workers(strategy: PeerStrategy, workers: int, iterations: int, case: str) -> None:
    """Check that workers with equal gradients take the steps of one worker."""

    def result(count: int) -> torch.Tensor:
        def gradient(_: int, iteration: int) -> torch.Tensor:
            return torch.full((count,), iteration + 1.0, dtype=torch.float64)

        table, optimizer = [[_STEP_S] * iterations] * count, Sgd(lr=0.5, momentum=0.5)
        run = PeerRun(strategy, table, gradient_of=gradient, optimizer=optimizer)
        return run.parameters[0]

    few, many = result(workers), result(2 * workers)
    require(
        bool(torch.isclose(few, many, rtol=1e-12, atol=0.0)),
        "workers that compute the same take the same steps, however many they are: "
        f"{workers} end at {float(few)}, {2 * workers} at {float(many)}",
        case,
        "combine gradients or models by their mean; a sum makes the learning rate depend on N",
    )
