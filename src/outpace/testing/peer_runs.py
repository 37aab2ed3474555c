"""Runs without servers whose gradients name their origin, with given run times."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import torch

from outpace.blocks.block import Block, whole
from outpace.cluster.laws import RunTime
from outpace.config.experiment import Experiment
from outpace.config.goals import Evaluate, Stop
from outpace.optim import Sgd, UpdaterKind
from outpace.record.trace import Trace, trace_table
from outpace.simulation.composition import simulation_of
from outpace.sync import PeerStrategy
from outpace.tasks import Quadratic
from outpace.tasks.quadratic import QuadraticWorkload

BASE: Final = 4  # a digit is the number of times that a gradient is in a sum
GradientOf: TypeAlias = Callable[[int, int], torch.Tensor]  # worker, iteration


class MarkedWorkload(QuadraticWorkload):
    """A task whose gradients name their origin: worker w has BASE^i in entry w in iteration i.

    The other entries are 0, and there is no rounding. `gradient_of` can give other values. All
    parameters are zero at the beginning.

    Attributes:
        read: by worker and iteration, the parameters at which the gradient is computed.
    """

    def __init__(self, workers: int, gradient_of: GradientOf | None = None) -> None:
        super().__init__([0.0] * workers, 0.0, 0)
        self._gradient_of = gradient_of or self._mark
        self.read: dict[tuple[int, int], list[float]] = {}

    def initial_parameters(self) -> list[Block]:
        return [torch.zeros(self.size, dtype=torch.float64)]

    def gradient(
        self, parameters: Sequence[Block], worker: int, iteration: int
    ) -> tuple[float, Sequence[Block]]:
        point = whole(parameters[0])
        assert isinstance(point, torch.Tensor)
        self.read[worker, iteration] = point.tolist()
        return 0.0, [self._gradient_of(worker, iteration)]

    def _mark(self, worker: int, iteration: int) -> torch.Tensor:
        found = torch.zeros(self.size, dtype=torch.float64)
        found[worker] = float(BASE**iteration)
        return found


class GivenTimes:
    """A law of run times that are given in seconds by worker and iteration."""

    slow = ()

    def __init__(self, table: Sequence[Sequence[float]]) -> None:
        self._table = table

    def run_time(self, seed: int, workers: int, iterations: int | None = None) -> RunTime:
        return lambda worker, iteration, now: self._table[worker][iteration]


class PeerRun:
    """A finished run in virtual time.

    Args:
        sync: the strategy.
        table: run times in seconds by worker and iteration.
        lr: learning rate of plain SGD; None: the number of workers N, so that N/N is 1 and nothing
            is rounded.
        lasts: for workers that stop early, the first iteration that they do not start.
        changes: further keys of the experiment.

    Attributes:
        parameters: the final model.
        read: see `MarkedWorkload`.
        asked: methods of the context that the program called to get its parameters.
        totals: totals of the recorder.
        now: virtual time at the end of the run, in ns.
    """

    def __init__(
        self,
        sync: PeerStrategy,
        table: Sequence[Sequence[float]],
        *,
        tie_seed: int | None = None,
        lr: float | None = None,
        optimizer: UpdaterKind | None = None,
        lasts: Mapping[int, int] | None = None,
        gradient_of: GradientOf | None = None,
        **changes: Any,
    ) -> None:
        workers = len(table)
        # The law and the strategy may be classes that Experiment does not list, like a user's own.
        compute: Any = GivenTimes(table)
        strategy: Any = sync
        experiment = Experiment(
            task=Quadratic(eigenvalues=(0.0,)),
            workers=workers,
            sync=strategy,
            compute=compute,
            stop=Stop(iterations=len(table[0])),
            evaluate=Evaluate(),
            optimizer=optimizer or Sgd(lr=float(workers) if lr is None else lr),
            **changes,
        )
        sink = trace_table()
        workload = MarkedWorkload(workers, gradient_of)
        simulation = simulation_of(experiment, workload, Trace(sink), tie_seed=tie_seed)
        self.asked: set[str] = set()
        exchange: Any = simulation.exchange
        contexts = exchange.contexts
        for context in contexts:
            for name in ("common", "own", "begin_exchange"):
                setattr(context, name, self._noted(name, getattr(context, name)))
        for worker, last in (lasts or {}).items():
            contexts[worker].must_stop = lambda iteration, last=last: iteration >= last
        try:
            simulation.run()
        finally:
            simulation.close()
        (parameters,) = simulation.parameters()
        assert isinstance(parameters, torch.Tensor)
        self.parameters = parameters
        self.read = workload.read
        self.totals = simulation.totals
        self.now = simulation.kernel.now
        self._rows: list[dict[str, Any]] = sink.table().to_pylist()

    def _noted(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def called(*arguments: Any) -> Any:
            self.asked.add(name)
            return method(*arguments)

        return called

    def rows(self, event: str, **where: object) -> list[dict[str, Any]]:
        """Return the rows of an event whose columns have the given values."""
        return [
            row
            for row in self._rows
            if row["event"] == event and all(row[key] == value for key, value in where.items())
        ]


def digits(number: float, count: int) -> list[int]:
    """Return how often each iteration's gradient is in a sum."""
    total = int(number)
    assert total == number
    return [total // BASE**iteration % BASE for iteration in range(count)]
