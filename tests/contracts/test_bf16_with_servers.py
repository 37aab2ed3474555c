"""`sync.wire: bf16` with servers: the same bits in every runtime, and half the bytes."""

from __future__ import annotations

import struct

import pytest
import torch
from tests.support.fluentps import behind_barrier
from tests.support.paths import SCRIPTS
from tests.support.runtimes import every_runtime

from outpace.experiment.running import run, simulate

EIGENVALUES = [0.7, 0.3, 1.1]


def by_hand(numbers: torch.Tensor) -> torch.Tensor:
    """To the upper 16 bits of a float32, to nearest, ties to even."""
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
    assert not torch.equal(found, seen)  # the final parameters are those of the servers


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"optimizer": {"kind": "adam", "lr": 0.01}},
        {"sync": {"kind": "ssp", "staleness": 0, "apply": "on-advance", "wire": "bf16"}},
        {"sync": behind_barrier("bsp", wire="bf16")},
        {"skip": {"push": {"every": 2, "gradient": "accumulate"}}},
    ],
    ids=["sgd", "adam", "ssp-0", "global barrier", "skipped pushes"],
)
def test_a_real_run_has_bitwise_the_parameters_of_virtual_time(changes):
    made = digits(**changes)
    virtual, real = simulate(made), run(made)
    assert real.summary["parameters_digest"] == virtual.summary["parameters_digest"]
    sync = made["sync"]
    if sync["kind"] == "python":
        sync = {**sync, "arguments": {**sync["arguments"], "wire": "full"}}
    else:
        sync = {**sync, "wire": "full"}
    full = simulate({**made, "sync": sync})
    assert full.summary["parameters_digest"] != virtual.summary["parameters_digest"]


@every_runtime
def test_a_script_trains_what_its_task_trains(run):
    wire = {"kind": "bsp", "wire": "bf16"}
    script = {"kind": "script", "path": str(SCRIPTS / "several.py"), "arguments": ["digits", "-"]}
    made = {"task": script, "workers": 2, "servers": 2, "sync": wire, "deterministic": True}
    if run is simulate:
        made["compute"] = {"kind": "constant", "mean_s": 1.0}
    task = digits(
        seed=5,
        workers=2,
        sync=wire,
        optimizer={"kind": "sgd", "lr": 0.05, "momentum": 0.9},
        batch_size=16,
        stop={"iterations": 8},
    )
    found, expected = run(made).parameters, simulate(task).parameters
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in found)


@pytest.mark.parametrize(
    ("run", "task", "elements"),
    [
        (simulate, {"kind": "timing", "parameters": 1000}, 1000),
        (simulate, {"kind": "digits-mlp"}, 4810),
        (run, {"kind": "timing", "parameters": 1000}, 1000),
    ],
)
def test_the_bytes_halve(run, task, elements):
    made = digits(task=task, stop={"iterations": 2})
    sent = {
        wire: run({**made, "sync": {"kind": "bsp", "wire": wire}}).summary["bytes_sent"]
        for wire in ("full", "bf16")
    }
    # Three workers push and pull in two iterations.
    assert sent == {"full": 12 * 4 * elements, "bf16": 12 * 2 * elements}


@pytest.mark.parametrize("base", ["Policy", "object"])
def test_a_policy_of_the_user_can_have_it(tmp_path, base):
    (tmp_path / "mine.py").write_text(
        "from outpace.sync import Asp, Policy\n"
        f"class Mine({base}):\n"
        "    wire = 'bf16'\n"
        "    def may_answer(self, pull, view): return Asp().may_answer(pull, view)\n"
        "    def patience_s(self, view): return 0.0 if view.reached >= view.live else 1.0\n"
    )
    sync = {"kind": "python", "target": f"{tmp_path}/mine.py:Mine"}
    made = config(sync=sync, task={"kind": "timing", "parameters": 1000}, servers=1)
    assert simulate(made).summary["bytes_sent"] == 2 * 5 * 2 * 1000


def test_a_server_needs_the_time_of_the_bytes_that_travel_but_updates_all_parameters():
    # The server has 400 bytes, of which 200 travel: a push takes 200 · 0.1 ms more than with none.
    result = simulate(
        config(
            task={"kind": "timing", "parameters": 100},
            servers=1,
            compute={"kind": "constant", "mean_s": 1.0},
            push_time={"kind": "constant", "mean_s": 0.1},
            update_time={"kind": "constant", "mean_s": 0.2},
            service_size={
                "size_bytes": 400,
                "message_s_per_byte": 1e-4,
                "update_s_per_byte": 1e-4,
            },
            stop={"iterations": 10},
        )
    )
    assert result.summary["virtual_time_s"] == pytest.approx(10 * (1 + 0.08 + 0.2))
