"""Requests that took too long to belong to the others: `report.explaining.servers.stops_in`."""

import numpy as np

from outpace.report.explaining.servers import stops_in


def test_a_stop_is_found_though_short_times_are_noted_as_less_than_nothing():
    """Processes note the two ends of a time; their difference can be below zero."""
    iterations, workers = 400, 2
    generator = np.random.default_rng(1)
    times = 0.002 * np.exp(generator.normal(0, 0.2, (1, iterations, workers)))
    times[0, 3, 1] = -0.03  # by more than what is added to it
    times[0, 20, 0] = 5.0
    rows_of = np.broadcast_to(np.arange(iterations)[:, None], (iterations, workers))
    longest = times.max(axis=2).T
    assert stops_in(times, rows_of, longest, 0.02) == [(20, 0)]
