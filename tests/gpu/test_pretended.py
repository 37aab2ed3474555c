"""Values of scripts on a device other than the CPU, without a GPU: see `pretend_gpu`.

The scripts make that device torch's default device.
"""

from __future__ import annotations

import pytest
import torch
from tests.gpu.training import (
    launch,
    mean_gradient_training,
    plain,
    require_averaged,
    require_close,
    require_collectives,
    script,
)
from torch.utils import backend_registration

import outpace

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not hasattr(backend_registration, "_setup_privateuseone_for_python_backend"),
        reason="this release of torch has no devices in Python",
    ),
]


def test_gradients_on_a_device_reach_servers_and_parameters_come_back(tmp_path):
    (found,) = launch(tmp_path, "adamw", "pretend")
    require_close(found["gradients"], plain("adamw", "cpu")["gradients"], 1e-6)


def test_workers_that_share_a_device_average_on_the_cpu(tmp_path):
    require_averaged(tmp_path, "pretend", {"kind": "ssgd"})


def test_the_replica_of_hpsgd_takes_the_steps_of_adamw_on_the_device(tmp_path):
    one, other = launch(tmp_path, "adamw", "pretend", workers=2, sync={"kind": "hpsgd"})
    require_close(one["parameters"], other["parameters"], 0)


def test_collectives_of_a_script_in_virtual_time_take_tensors_on_a_device(tmp_path):
    config = {
        "workers": 2,
        "sync": {"kind": "ssgd"},
        "compute": {"kind": "constant", "mean_s": 1.0},
    }
    outpace.simulate({**config, "task": script("ddp_on_gpu.py", tmp_path, "pretend")})
    found = [torch.load(tmp_path / f"{rank}.pt") for rank in range(2)]
    expected = mean_gradient_training("cpu", 2, lr=0.1, momentum=0.0)
    require_close(found[0]["parameters"], expected, 1e-5)
    require_collectives(found)


def test_a_script_in_virtual_time_trains_on_a_device(tmp_path):
    config = {"workers": 2, "servers": 2, "sync": {"kind": "bsp"}}
    config["compute"] = {"kind": "constant", "mean_s": 1.0}
    outpace.simulate({**config, "task": script("on_gpu.py", tmp_path, "sgd", "pretend")})
    expected = mean_gradient_training("cpu", 2, lr=0.1, momentum=0.9)
    require_close(torch.load(tmp_path / "0.pt")["parameters"], expected, 1e-5)
