"""Tests that need a GPU are skipped if there is none.

OUTPACE_TEST_DEVICE=cpu runs them on the CPU, except for tests that really need a GPU; in this way
the tests can be tried without one.
"""

import os

import pytest
import torch

DEVICE = os.environ.setdefault("OUTPACE_TEST_DEVICE", "cuda:0")


@pytest.fixture
def device():
    """The device to train on; skips the test where there is no such device."""
    if DEVICE.startswith("cuda") and not torch.cuda.is_available():
        pytest.skip("there is no GPU")
    return DEVICE


@pytest.fixture
def gpu(device):
    """The same as `device`, for tests that are impossible on a CPU."""
    if not device.startswith("cuda"):
        pytest.skip("this needs a GPU")
    return device
