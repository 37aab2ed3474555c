"""Parameters that a script sets itself are kept if they are its own, or else refused."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.support.checkpoints import same
from tests.support.paths import SCRIPTS

from outpace.errors import ConfigError
from outpace.experiment.running import run, simulate

SCRIPT = SCRIPTS / "sets_parameters.py"
TRAIN = runpy.run_path(str(SCRIPT))["train"]
LAW = {"kind": "constant", "mean_s": 0.5}
SSGD = {"kind": "ssgd"}


def configuration(case: str, folder: Path, workers: int = 2, **changes: Any) -> dict[str, Any]:
    task = {"kind": "script", "path": str(SCRIPT), "arguments": [case, str(folder)]}
    return {"workers": workers, "compute": LAW, "deterministic": True, "task": task, **changes}


def both(tmp_path: Path, case: str, **changes: Any) -> tuple[list[Any], list[Any]]:
    """Return the results and saved parameters of a run in virtual time and of a real one."""
    results, saved = [], []
    for how in (simulate, run):
        folder = tmp_path / how.__name__
        folder.mkdir()
        results.append(how(configuration(case, folder, **changes), tmp_path / f"{how.__name__}d"))
        saved.append([torch.load(folder / f"{rank}.pt") for rank in range(2)])
    return results, saved


@pytest.mark.slow
def test_own_parameters_stay_as_the_script_sets_them_in_both_runtimes(tmp_path):
    results, saved = both(tmp_path, "clamp", sync=SSGD)
    assert same(*saved)
    assert same(results[0].parameters, results[1].parameters)
    for each in saved[0]:
        assert max(float(value.abs().max()) for value in each["after"].values()) <= 0.25
    assert [result.summary["warnings"] for result in results] == [[], []]
    # The mean gradient of two halves equals the gradient of the whole batch.
    expected = TRAIN("clamp", attach=lambda *both: both)
    for each in saved[0]:
        assert same(each["before"], each["after"])
        for name, value in expected.items():
            assert torch.allclose(each["after"][name], value, rtol=0, atol=1e-6), name


def test_workers_that_set_different_parameters_are_refused_in_virtual_time(tmp_path):
    words = "worker-0 and worker-1 have set parameters to different values, so their models would"
    with pytest.raises(ConfigError, match=words):
        simulate(configuration("apart", tmp_path, sync=SSGD))


def test_with_servers_the_run_ends_with_one_line(tmp_path):
    words = r"the script changed the parameters .* between its steps 0 and 1\. With sync.kind=bsp"
    with pytest.raises(ConfigError, match=words):
        simulate(configuration("clamp", tmp_path, sync={"kind": "bsp"}))


@pytest.mark.filterwarnings("ignore:the script set the parameters")
def test_with_servers_finish_leaves_what_the_script_has_set_after_its_last_step(tmp_path):
    result = simulate(
        configuration("last", tmp_path, workers=1, sync={"kind": "bsp"}), tmp_path / "run"
    )
    found = torch.load(tmp_path / "0.pt")
    assert same(found["before"], found["after"])
    for name, value in found["before"].items():
        assert torch.equal(result.parameters[name], 2 * value)
    (warning,) = result.summary["warnings"]
    assert "after its last step: outpace.finish() leaves them in its model" in warning
