"""Simulates the times of a run without failures and checkpoints, as the base of its goodput."""

from __future__ import annotations

from dataclasses import replace

from outpace.config.experiment import Experiment
from outpace.config.goals import Evaluate, Stop
from outpace.record.sinks import NoSink
from outpace.record.trace import Trace
from outpace.simulation.peers import PeerSimulation
from outpace.simulation.servers import Simulation
from outpace.support.units import Time, seconds
from outpace.tasks import Timing, Workload


def undisturbed_rate(
    experiment: Experiment, workload: Workload, until: Time | None, iterations: int
) -> float:
    """Return the gradients per second that are applied without failures; 0 if it is not known.

    Args:
        experiment: of a run with failures.
        workload: of that run; it says the sizes of the layers.
        until: the latest end of this run (ns); None: it has as many iterations as that one.
        iterations: of the worker of that run that has most.
    """
    if not iterations:
        return 0.0
    task = Timing(layers=tuple(workload.layers))
    plain = replace(
        experiment,
        task=task,
        faults=None,
        checkpoint=None,
        evaluate=Evaluate(),
        target=None,
        stop=Stop(iterations=iterations, virtual_time_s=None if until is None else seconds(until)),
    )
    sizes = task.workload(plain.workers, plain.batch_size, plain.seed)
    kind = Simulation if plain.peers is None else PeerSimulation
    run = kind(plain, sizes, Trace(NoSink()))
    try:
        run.run()
        return run.totals.applied / seconds(run.kernel.now) if run.kernel.now else 0.0
    finally:
        run.close()
