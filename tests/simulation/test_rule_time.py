"""Virtual time that a cut-off rule takes: `rule_time: measured`, with a clock set by hand."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from outpace.experiment.running import simulate
from outpace.kernel import Kernel
from outpace.predict.models import FittingAtOnce
from outpace.simulation import cutting_off
from outpace.simulation.cutting_off import RuleClock, TimedFitting
from outpace.support.units import nanoseconds


@pytest.fixture
def processor(monkeypatch):
    """Processor time in seconds: `spent`, which grows by `per_look` each time it is read."""
    clock = SimpleNamespace(spent=0.0, per_look=0.0)

    def look():
        clock.spent += clock.per_look
        return clock.spent

    monkeypatch.setattr(cutting_off, "time", SimpleNamespace(thread_time=look))
    return clock


def run(**sync):
    return simulate(
        {
            "task": {"kind": "timing", "parameters": 10},
            "workers": 2,
            "compute": {"kind": "constant", "mean_s": 1.0},
            "sync": {"kind": "cutoff", "model": "all", **sync},
            "stop": {"iterations": 4},
        }
    )


@pytest.mark.parametrize(("decision_s", "iteration_s"), [(0.5, 1.0), (3.0, 3.0)])
def test_workers_compute_while_the_rule_decides(processor, decision_s, iteration_s):
    processor.per_look = decision_s
    assert run(rule_time="measured").summary["virtual_time_s"] == pytest.approx(4 * iteration_s)
    assert run().summary["virtual_time_s"] == 4.0


def test_a_fit_is_done_when_its_time_has_passed_and_no_decision_takes_it(processor, monkeypatch):
    def fit(*arguments, **options):
        processor.spent += 2.0
        return "model"

    monkeypatch.setattr("outpace.predict.models.fit", fit)
    kernel, clock = Kernel(), RuleClock()
    fitting = TimedFitting(FittingAtOnce("pooled", 0), kernel, clock)
    kernel.set_time(nanoseconds(5.0))
    fitting.start(None)
    assert clock() == 0.0
    kernel.set_time(nanoseconds(6.9))
    assert not fitting.done()
    assert fitting.model is None
    kernel.set_time(nanoseconds(7.0))
    assert fitting.done()
    assert fitting.model == "model"
