"""Settings of all tests: Hypothesis, Ctrl-C, garbage, torch threads, the probe of real runs."""

import gc
import signal
from collections import Counter

import pytest
import torch
from hypothesis import HealthCheck, settings
from tests.support.cluster import nodes
from tests.support.warm import Warm

from outpace.real.net import probes

# `make test` tries the same examples everywhere, so that it cannot fail by chance. `make soak`
# (--hypothesis-profile soak) tries others, and more of them where a test does not say how many.
_COMMON = settings(deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("outpace", _COMMON, derandomize=True)
settings.register_profile("soak", _COMMON, derandomize=False, max_examples=300)
settings.load_profile("outpace")

# It would take a minute in hundreds of real runs.
probes.PROBE_S = 0.02

# Programs in the background of a shell ignore Ctrl-C, and so would the commands under test.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items):
    """Begin with the files that have the most slow tests, so that these do not run last.

    `make test` gives files to its processes in this order (--no-loadscope-reorder). Files with a
    Ray cluster mostly wait, so they are not adjacent, and other files compute in the meantime.
    """
    slow = Counter(item.path for item in items if item.get_closest_marker("slow"))
    files = sorted(
        {item.path: item.module for item in items}.items(), key=lambda file: -slow[file[0]]
    )
    with_ray = [path for path, module in files if getattr(module, "nodes", None) is nodes]
    order = [path for path, _ in files if path not in with_ray]
    for number, path in enumerate(with_ray):
        order.insert(4 * number, path)
    place = {path: number for number, path in enumerate(order)}
    items.sort(key=lambda item: place[item.path])


def pytest_collection_finish():
    """Exclude objects that exist before the first test from later garbage collections.

    These are half a million objects, and each collection would take 0.3 s.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _one_torch_thread():
    """Compute on one thread, as simulations do, so that results can be compared bit by bit."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def warm():
    """Starts commands and scripts without the time of their imports."""
    with Warm() as warm:
        yield warm
