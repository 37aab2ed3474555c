"""Rules compared over a recording."""

from __future__ import annotations

import numpy as np
import pytest

from outpace.errors import ConfigError
from outpace.predict.recorded import RunTimes
from outpace.predict.trials import trials

NODE = np.arange(12) // 4
PLAIN = ["all", "fixed", "elfving", "last", "mean-5", "last-20", "last-5", "early-20"]


def recording(iterations=32, cut_off=False):
    random = np.random.default_rng(2)
    slow = np.repeat(random.random((iterations, 3)) < 0.3, 4, axis=1)
    seconds = np.where(slow, 3.0, 1.0) * random.lognormal(0, 0.05, (iterations, 12))
    censored = np.zeros_like(seconds, dtype=bool)
    censored[-1, 3] = cut_off
    return RunTimes(seconds, censored, NODE)


@pytest.mark.slow
def test_all_rules_after_the_warm_up_the_learned_one_fitted_to_it():
    done = []
    found = dict(trials(recording(), progress=done.append))
    assert list(found) == [*PLAIN, "pooled"]
    assert {len(each.count) for each in found.values()} == {12}
    assert (found["all"].count == 12).all()
    assert (found["fixed"].count == 11).all()
    assert found["pooled"].of_oracle > found["all"].of_oracle
    assert done == sorted(done)
    assert done[-1] == 1.0


@pytest.mark.parametrize(
    ("times", "words"),
    [
        (recording(cut_off=True), "worker 3 was cut off in iteration 31, so it is unknown what"),
        (recording(20), "has 20 iterations, and the first 20 are the warm-up"),
    ],
)
def test_a_recording_that_does_not_say_what_is_needed_is_refused(times, words):
    with pytest.raises(ConfigError, match=words):
        next(trials(times))
