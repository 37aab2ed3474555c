"""Rules compared over a recording."""

from __future__ import annotations

import numpy as np
import pytest

from outpace.errors import ConfigError
from outpace.predict.recorded import RunTimes
from outpace.predict.trials import trials

NODE = np.arange(12) // 4


def recording(iterations=32, cut_off=False):
    random = np.random.default_rng(2)
    slow = np.repeat(random.random((iterations, 3)) < 0.3, 4, axis=1)
    seconds = np.where(slow, 3.0, 1.0) * random.lognormal(0, 0.05, (iterations, 12))
    censored = np.zeros_like(seconds, dtype=bool)
    censored[-1, 3] = cut_off
    return RunTimes(seconds, censored, NODE)


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
