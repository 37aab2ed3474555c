"""Hypothesis strategies for runs without servers."""

from __future__ import annotations

from hypothesis import strategies as st

from outpace.cluster.network import NetworkLaw

MS = 1_000_000  # ns


@st.composite
def timings(draw):
    """Draw seconds by worker and iteration, in steps of 10 ms, so many events are simultaneous."""
    workers, iterations = draw(st.integers(2, 4)), draw(st.integers(1, 8))
    step = st.integers(1, 6).map(lambda tenths: tenths / 100)
    row = st.lists(step, min_size=iterations, max_size=iterations)
    return draw(st.lists(row, min_size=workers, max_size=workers))


@st.composite
def networks(draw):
    latency_s = draw(st.sampled_from([0.0, 0.0025, 0.01, 0.04]))
    bandwidth = draw(st.sampled_from([None, 320.0]))
    contention = draw(st.sampled_from(["serialised", "fair"]))
    if draw(st.booleans()):
        return None
    return NetworkLaw(latency_s, bandwidth, contention)
