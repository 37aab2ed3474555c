"""Actions of scripts have the same effect in virtual time as in plain PyTorch or real runs."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.support.checkpoints import same
from tests.support.paths import SCRIPTS

from outpace.errors import ConfigError
from outpace.experiment.results import Result
from outpace.experiment.running import run, simulate

FEATURES = runpy.run_path(str(SCRIPTS / "features.py"))
OWN = runpy.run_path(str(SCRIPTS / "own_optimizer.py"))
CHECKPOINTS = runpy.run_path(str(SCRIPTS / "checkpoints.py"))
LAW = {"kind": "constant", "mean_s": 0.5}


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    """Let scripts of runs without a folder write their files elsewhere."""
    monkeypatch.chdir(tmp_path)


def configuration(script: str, *arguments: object, **changes: Any) -> dict[str, Any]:
    given = [str(argument) for argument in arguments]
    task = {"kind": "script", "path": str(SCRIPTS / script), "arguments": given}
    return {"workers": 1, "sync": {"kind": "bsp"}, "compute": LAW, "task": task, **changes}


def simulated(script: str, *arguments: object, **changes: Any) -> Result:
    return simulate(configuration(script, *arguments, **changes))


def alone(model: Any, optimizer: Any) -> Any:
    return model, optimizer


@pytest.mark.parametrize("case", ["adam_clipped", "unusual", "changed", "compiled", "adapters"])
def test_one_worker_does_what_plain_pytorch_does(tmp_path, case):
    if case == "adapters":
        pytest.importorskip("peft", reason="peft is not installed: make recipes")
    result = simulated("features.py", case, tmp_path, servers=3)
    expected = FEATURES["CASES"][case](alone)
    found = torch.load(tmp_path / "state.pt")
    if case == "compiled":  # torch computes with a rate in a tensor in float32, servers in float64
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)
    else:
        assert same(found, expected)
    if case == "adam_clipped":
        expected.pop("scale")
        assert same(result.parameters, expected)
    assert result.summary["iterations"] == [FEATURES["STEPS"]]


@pytest.mark.filterwarnings("ignore:worker-0 and worker-1 computed the same gradient")
@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("adam", {"servers": 3}),
        ("nadam", {"sync": {"kind": "local-sgd", "every": 1}, "workers": 2}),
    ],
    ids=["3 servers", "local-sgd"],
)
def test_checkpoints_are_bitwise_those_of_plain_pytorch(tmp_path, kind, changes):
    simulated("checkpoints.py", kind, tmp_path, **changes)
    expected = CHECKPOINTS["kept"](kind, alone, lambda: None)
    assert len(expected[2]["optimizer"]["state"]) == 5  # neither the frozen nor the unused ones
    for rank in range(changes.get("workers", 1)):
        saved = torch.load(tmp_path / f"{rank}.pt")
        for number, (one, other) in enumerate(zip(saved, expected, strict=True)):
            assert same(one, other), f"checkpoint {number} of worker {rank}"


def test_workers_end_at_different_times_and_skip_steps_as_for_real(tmp_path):
    changes: dict[str, Any] = {"workers": 3, "sync": {"kind": "ssgd"}}
    results, saved = [], []
    for how in (simulate, run):
        folder = Path(tmp_path / how.__name__)
        folder.mkdir()
        results.append(how(configuration("peers.py", "uneven", folder, **changes)))
        saved.append([torch.load(folder / f"{rank}.pt") for rank in range(3)])
    virtual, real = results
    for key in ("iterations", "gradients_applied"):
        assert virtual.summary[key] == real.summary[key]
    pairs = [(virtual.parameters, real.parameters), *zip(*saved, strict=True)]
    for one, other in pairs:  # also BatchNorm's averages, after a step that GradScaler skips
        for name, value in one.items():
            assert torch.allclose(value, other[name], rtol=0, atol=1e-6), name


CUT_OFF = {"kind": "cutoff", "model": "fixed", "share": 2 / 3}


def test_a_step_that_is_cut_off_leaves_no_trace_whatever_the_number_of_cores():
    law = {"kind": "lognormal", "mean_s": 0.5, "cv": 0.8}
    changes = {"workers": 3, "compute": law, "sync": CUT_OFF}
    first, again = (simulated("cut_short.py", cores, **changes) for cores in ("all", "one"))
    for key in ("parameters_digest", "trace_digest", "iterations"):
        assert first.summary[key] == again.summary[key]
    assert first.metrics.equals(again.metrics)
    for worker, used in enumerate(first.summary["iterations"]):
        assert used < 8
        rows = [row for row in first.metrics.to_pylist() if row["worker"] == worker]
        # Each step that was not cut off is one batch for BatchNorm.
        assert rows[-1]["seen"] == used
        assert rows[-1]["stopped"] == 8 - used
        assert len({row["noise"] for row in rows}) == 9


def test_each_worker_s_own_optimizer_takes_the_steps_as_for_real(tmp_path):
    changes: dict[str, Any] = {"workers": 2, "sync": {"kind": "local-sgd", "every": 2}}
    arguments = "own_optimizer.py", "own"
    virtual = simulate(configuration(*arguments, **changes), tmp_path / "v")
    real = run(configuration(*arguments, deterministic=True, **changes), tmp_path / "r")
    saved = [
        [torch.load(tmp_path / folder / "files" / f"worker-{n}" / "end.pt") for n in range(2)]
        for folder in ("v", "r")
    ]
    assert same(saved[0], saved[1])
    assert same(saved[0][0]["model"], saved[0][1]["model"])
    assert virtual.summary["parameters_digest"] == real.summary["parameters_digest"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", ["torch.optim.Adafactor", "schedulefree.AdamWScheduleFree", "lion_pytorch.Lion"]
)
def test_an_optimizer_that_servers_do_not_know_steps_as_on_all_data_in_one_process(tmp_path, kind):
    """Its step may depend on a whole matrix, or on its mode."""
    library = kind.partition(".")[0]
    pytest.importorskip(library, reason=f"{library} is not installed: make recipes")
    run(configuration("own_optimizer.py", kind, workers=2, sync={"kind": "ssgd"}), tmp_path / "run")
    expected = OWN["train"](kind, alone, range(2))["model"]
    for number in range(2):
        found = torch.load(tmp_path / "run" / "files" / f"worker-{number}" / "end.pt")["model"]
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)


@pytest.mark.filterwarnings("ignore::outpace.errors.OutpaceWarning")
def test_a_run_warns_of_workers_that_write_one_file_and_of_a_script_without_a_step(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(
        "import outpace, torch\n"
        "model = torch.nn.Linear(2, 1)\n"
        "outpace.attach(model, torch.optim.SGD(model.parameters(), lr=0.1))\n"
        "torch.save(model.state_dict(), 'last.pt')\n"
        "open(f'own-{outpace.rank()}.txt', 'w').close()\n"
        "open('log.txt', 'a').close()\n"
    )
    for runs in (simulate, run):
        result = runs(configuration(str(script), workers=2))
        files, steps = result.summary["warnings"]
        assert "worker-0, worker-1 wrote the same files" in files
        assert "the files of the others: last.pt; write them in worker 0 alone" in files
        assert "no worker took a step" in steps


def test_a_phase_with_other_settings_and_an_empty_state_equals_a_new_optimizer(
    tmp_path, monkeypatch
):
    script = str(SCRIPTS / "phases.py")
    monkeypatch.setattr("sys.argv", [script, "new", str(tmp_path / "plain.pt")])
    runpy.run_path(script, run_name="__main__")
    simulated("phases.py", "again", tmp_path / "run.pt")
    assert same(torch.load(tmp_path / "run.pt"), torch.load(tmp_path / "plain.pt"))
    with pytest.raises(ConfigError, match=r"SGD at .*phases\.py:\d+ took a step .* new phase set"):
        simulated("phases.py", "new", tmp_path / "run.pt")
