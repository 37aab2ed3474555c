"""Fits during a real run, without the process that carries them out."""

from __future__ import annotations

import pytest
from tests.support.tables import table

from outpace.errors import ConfigError
from outpace.predict.models import MODELS, Kind
from outpace.real.coordinator.fitting import BackgroundFitting
from outpace.support.processes import forking


class Ended:
    """A process that has ended."""

    def is_alive(self):
        return False

    def close(self, _=None):
        pass

    join = terminate = close


@pytest.fixture(autouse=True)
def here(monkeypatch):
    """Fit in this process, because another process would not have the replacement."""
    monkeypatch.setitem(MODELS, "stand-in", Kind("tests.support.stand_in", "StandIn"))
    monkeypatch.setattr("os.nice", lambda _: 0)
    monkeypatch.setattr(forking, "start", lambda _, target, *given: target(*given) or Ended())


def test_fits_of_a_run_begin_with_the_one_before():
    fitting, begun_with = BackgroundFitting("stand-in", 0), []
    for value in (1.0, 3.0, 5.0):
        fitting.start(table([[value], [value]]))
        assert fitting.done()
        begun_with.append(fitting.model.begun_with)
    assert begun_with == [None, 1.0, 3.0]


def test_a_fit_is_told_whether_run_times_are_sorted(monkeypatch):
    monkeypatch.setitem(MODELS, "stand-in", Kind("tests.support.stand_in", "StandIn"))
    fitting = BackgroundFitting("stand-in", 0, ordered=True)
    fitting.start(table([[1.0], [1.0]]))
    assert fitting.done()
    assert fitting.model.ordered


def test_a_fit_that_fails_says_why_and_the_earlier_model_is_kept():
    fitting = BackgroundFitting("stand-in", 0)
    fitting.start(table([[1.0], [1.0]]))
    assert fitting.done()
    fitting.start(table([[1.0]]))
    with pytest.raises(ConfigError, match="1 iteration is too few"):
        fitting.done()
    assert fitting.model.mean == 1.0
