"""A run takes the backend of torch.distributed that fits its devices."""

from __future__ import annotations

import pytest
import torch

from outpace.real.collective.group import backend_for, gpu_of


@pytest.mark.parametrize(
    ("gpus", "backend"),
    [
        (["a", "b", "c"], "nccl"),
        (["a", "b", "a"], "gloo"),  # NCCL refuses two on one GPU
        (["a", "", "c"], "gloo"),
        (["", "", ""], "gloo"),
    ],
)
def test_nccl_is_for_workers_with_a_gpu_each(gpus, backend):
    assert backend_for(gpus) == backend


def test_a_cpu_and_several_devices_are_no_gpu():
    assert gpu_of(torch.device("cpu")) == gpu_of(None) == ""
