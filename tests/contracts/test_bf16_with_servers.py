"""`sync.wire: bf16` with servers: the same bits in every runtime, and half the bytes."""

from __future__ import annotations

import struct

import pytest
import torch
from tests.support.fluentps import behind_barrier
from tests.support.runtimes import every_runtime

from outpace.experiment.running import run, simulate

EIGENVALUES = [0.7, 0.3, 1.1]


def by_hand(numbers: torch.Tensor) -> torch.Tensor:
    """Round to the upper 16 bits of a float32, to nearest, ties to even."""
    found = []
    for number in numbers.tolist():
        (bits,) = struct.unpack("<I", struct.pack("<f", number))
        bits += 0x7FFF + (bits >> 16 & 1)
        found += struct.unpack("<f", struct.pack("<I", bits & 0xFFFF0000))
    return torch.tensor(found, dtype=torch.float64)


def config(**changes):
    return {
        "task": {"kind": "quadratic", "eigenvalues": EIGENVALUES},
        "workers": 1,
        "servers": 2,
        "sync": {"kind": "bsp", "wire": "bf16"},
        "optimizer": {"kind": "sgd", "lr": 0.1},
        "compute": {"kind": "constant", "mean_s": 0.001},
        "probe": False,
        "deterministic": True,
        "stop": {"iterations": 5},
        **changes,
    }


def digits(**changes):
    return config(
        **{
            "task": {"kind": "digits-cnn"},
            "workers": 3,
            "batch_size": 8,
            "stop": {"iterations": 4},
            **changes,
        }
    )


@every_runtime
def test_gradients_and_parameters_are_rounded_on_their_way_and_steps_are_not(run):
    # The server keeps w. The worker computes at w rounded, after the first iteration, and sends
    # its gradient, λ·w, rounded.
    eigenvalues = torch.tensor(EIGENVALUES, dtype=torch.float64)
    kept = seen = torch.ones(3, dtype=torch.float64)
    for _ in range(5):
        kept = kept - 0.1 * by_hand(eigenvalues * seen)
        seen = by_hand(kept)
    found = run(config()).parameters["w"]
    torch.testing.assert_close(found, kept, rtol=1e-14, atol=0)
    assert not torch.equal(found, seen)  # the final parameters come from the servers


@pytest.mark.parametrize(
    "changes",
    [
        {"optimizer": {"kind": "adam", "lr": 0.01}, "sync": behind_barrier("bsp", wire="bf16")},
        {"skip": {"push": {"every": 2, "gradient": "accumulate"}}},
    ],
    ids=["adam behind a global barrier", "skipped pushes"],
)
def test_a_real_run_has_bitwise_the_parameters_of_virtual_time(changes):
    made = digits(**changes)
    virtual, real = simulate(made), run(made)
    for key in ("parameters_digest", "bytes_sent"):
        assert real.summary[key] == virtual.summary[key]
    sync = made["sync"]
    if sync["kind"] == "python":
        sync = {**sync, "arguments": {**sync["arguments"], "wire": "full"}}
    else:
        sync = {**sync, "wire": "full"}
    full = simulate({**made, "sync": sync})
    assert full.summary["parameters_digest"] != virtual.summary["parameters_digest"]


@pytest.mark.parametrize(
    ("task", "elements"),
    [({"kind": "timing", "parameters": 1000}, 1000), ({"kind": "digits-mlp"}, 4810)],
)
def test_the_bytes_halve(task, elements):
    made = digits(task=task, stop={"iterations": 2})
    sent = {
        wire: simulate({**made, "sync": {"kind": "bsp", "wire": wire}}).summary["bytes_sent"]
        for wire in ("full", "bf16")
    }
    # Three workers push and pull in two iterations.
    assert sent == {"full": 12 * 4 * elements, "bf16": 12 * 2 * elements}
