"""What all tests share. A failing hypothesis test prints what reproduces it."""

import os
import signal

import pytest
import torch
from hypothesis import HealthCheck, settings

settings.register_profile(
    "outpace",
    deadline=None,
    print_blob=True,
    derandomize=bool(os.environ.get("CI")),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("outpace")

# Whoever starts the tests in the background has Ctrl-C ignored, and so would all commands.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _one_torch_thread():
    """As in a simulation; what a test compares with must compute alike."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
