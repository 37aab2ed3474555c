"""Run times that are measured once before the run and then kept."""

from __future__ import annotations

from tests.support.paths import EXAMPLES

from outpace.experiment.comparison import compare, variants_from
from outpace.experiment.running import simulate
from outpace.support.yaml_files import read_yaml


def configuration(task: str = "digits-mlp", seed: int = 0, **compute):
    return {
        "task": {"kind": task},
        "workers": 3,
        "batch_size": 8,
        "seed": seed,
        "sync": {"kind": "asp"},
        "compute": {"kind": "measured", **compute},
        "stop": {"iterations": 20},
    }


def test_a_run_repeats_from_its_own_configuration(tmp_path):
    first = simulate(configuration(samples=5), tmp_path / "run")
    assert len(first.experiment.compute.seconds) == 5
    again = simulate(read_yaml(tmp_path / "run" / "config.yaml"))
    assert again.summary["trace_digest"] == first.summary["trace_digest"]
    assert again.experiment == first.experiment


def test_variants_that_are_compared_have_the_same_measurements(tmp_path):
    both = configuration(seed=1)
    both["variants"] = [
        {"name": "ASP", "sync": {"kind": "asp"}},
        {"name": "BSP", "sync": {"kind": "bsp"}},
    ]
    first, second = compare(variants_from(both, "the test", tmp_path))
    assert first.result.experiment.compute == second.result.experiment.compute


SLOW_S = 0.02


def test_a_task_whose_file_was_edited_is_measured_again(tmp_path):
    path = tmp_path / "own.py"
    text = (EXAMPLES / "my_task.py").read_text()
    given = configuration(samples=3)
    given["task"] = {"kind": "python", "target": f"{path}:make_task"}
    path.write_text(text)
    simulate(given)
    slow = f"(__import__('time').sleep({SLOW_S}), torch.nn.functional.cross_entropy(*both))[1]"
    assert text.count("loss=torch.nn.functional.cross_entropy") == 1
    path.write_text(
        text.replace("loss=torch.nn.functional.cross_entropy", f"loss=lambda *both: {slow}")
    )
    assert min(simulate(given).experiment.compute.seconds) >= SLOW_S
