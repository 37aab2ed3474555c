"""Workers without servers whose gradients say where they are, at times given one by one."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from outpace.config.experiment import Experiment
from outpace.config.goals import Evaluate, Stop
from outpace.optim import Sgd
from outpace.record.trace import Trace, trace_table
from outpace.simulation.composition import simulation_of
from outpace.tasks import Quadratic
from outpace.tasks.quadratic import QuadraticWorkload

BASE = 4  # a digit says how often a gradient is in a sum


class MarkedWorkload(QuadraticWorkload):
    """From zero; the gradient of worker w in iteration i is BASE^i at place w, exactly.

    Or what `gradient_of` says, in as many numbers.
    """

    def __init__(self, workers: int, gradient_of=None) -> None:
        super().__init__([0.0] * workers, 0.0, 0)
        self._gradient_of = gradient_of or self._mark
        self.read = {}  # worker, iteration -> at which parameters its gradient is

    def initial_parameters(self):
        return [torch.zeros(self.size, dtype=torch.float64)]

    def gradient(self, parameters, worker, iteration):
        self.read[worker, iteration] = parameters[0].tolist()
        return 0.0, [self._gradient_of(worker, iteration)]

    def _mark(self, worker, iteration):
        found = torch.zeros(self.size, dtype=torch.float64)
        found[worker] = float(BASE**iteration)
        return found


class Given:
    """A compute law: seconds by worker and iteration."""

    slow = ()

    def __init__(self, table: Sequence[Sequence[float]]) -> None:
        self._table = table

    def run_time(self, seed, workers, iterations):
        return lambda worker, iteration, now: self._table[worker][iteration]


class Run:
    """A run that has ended: `parameters`, `rows` of its trace by event, `totals`; what was `read`,
    and which parameters were `asked` for.

    lasts: worker -> the iteration that it does not start, where that is another one.
    """

    def __init__(
        self,
        sync,
        table,
        *,
        network=None,
        tie_seed=None,
        lr=None,
        optimizer=None,
        lasts=None,
        gradient_of=None,
        **more,
    ):
        workers = len(table)  # the usual learning rate: N/N is 1, so nothing is rounded
        experiment = Experiment(
            task=Quadratic(eigenvalues=(0.0,)),
            workers=workers,
            sync=sync,
            compute=Given(table),
            network=network,
            stop=Stop(iterations=len(table[0])),
            evaluate=Evaluate(),
            optimizer=optimizer or Sgd(lr=float(workers) if lr is None else lr),
            **more,
        )
        sink = trace_table()
        trace = Trace(sink)
        workload = MarkedWorkload(workers, gradient_of)
        simulation = simulation_of(experiment, workload, trace, tie_seed=tie_seed)
        self.asked = set()  # methods of the context that a program called for its parameters
        contexts = simulation.exchange.contexts
        for context in contexts:
            for name in ("common", "own", "begin_exchange"):
                setattr(context, name, self._noted(name, getattr(context, name)))
        for worker, last in (lasts or {}).items():
            contexts[worker].must_stop = lambda iteration, last=last: iteration >= last
        try:
            simulation.run()
        finally:
            simulation.close()
        (self.parameters,) = simulation.parameters()
        self.read = workload.read
        self.totals = simulation.totals
        self.now = simulation.kernel.now
        self._rows = sink.table().to_pylist()

    def _noted(self, name, method):
        def called(*arguments):
            self.asked.add(name)
            return method(*arguments)

        return called

    def rows(self, event, **where):
        """Rows of an event whose columns have the given values."""
        return [
            row
            for row in self._rows
            if row["event"] == event and all(row[key] == value for key, value in where.items())
        ]


def digits(number: float, count: int) -> list[int]:
    """Return how often each iteration's gradient is in this sum."""
    whole = int(number)
    assert whole == number
    return [whole // BASE**iteration % BASE for iteration in range(count)]
