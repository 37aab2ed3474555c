"""Tests that need a GPU are skipped where there is none.

OUTPACE_TEST_DEVICE=cpu runs them on the CPU, except for those that need a GPU by their nature: this
tries the tests themselves.
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
    """As `device`, for what cannot be tried on a CPU."""
    if not device.startswith("cuda"):
        pytest.skip("this needs a GPU")
    return device
