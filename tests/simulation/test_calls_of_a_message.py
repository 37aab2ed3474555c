"""The calls that a simulated message costs, counted: speed without the noise of a clock."""

import sys

from outpace.config.reading import experiment_from
from outpace.record.trace import Trace
from outpace.simulation.composition import simulation_of

# Values that were reached; a change that lowers them lowers these, too.
PYTHON_CALLS, C_CALLS = 16.8, 12.7


def counted(iterations: int) -> dict[str, int]:
    config = {
        "task": {"kind": "timing", "layers": [100_000] * 8},
        "workers": 64,
        "servers": 8,
        "sync": {"kind": "ssp", "staleness": 2},
        "compute": {"kind": "lognormal", "mean_s": 0.1, "cv": 0.3},
        "network": {"latency_s": 1e-4, "bandwidth_bytes_per_s": 1e9},
        "stop": {"iterations": iterations},
    }
    experiment = experiment_from(config, "the test")
    workload = experiment.task.workload(64, experiment.batch_size, experiment.seed)
    run = simulation_of(experiment, workload, Trace())
    calls = {"call": 0, "c_call": 0}

    def note(_frame, event, _argument):
        if event in calls:
            calls[event] += 1

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        run.run()
    finally:
        sys.setprofile(before)
        run.close()
    return {**calls, "messages": run.totals.messages}


def test_a_message_costs_no_more_calls_than_it_did():
    few, many = counted(5), counted(15)  # the difference is without start and end
    messages = many["messages"] - few["messages"]
    assert (many["call"] - few["call"]) / messages < PYTHON_CALLS
    assert (many["c_call"] - few["c_call"]) / messages < C_CALLS
