"""`stop`, comparisons and advice decide alike when a run reaches its target."""

import outpace
from outpace.experiment.advising.curves import SEARCH, Trial
from outpace.experiment.advising.problem import problem_of
from outpace.experiment.advising.runner import Budget, carry_out
from outpace.experiment.sources import source_of
from outpace.experiment.trials import Pool
from outpace.support.targets import Target

# Worker 1 is faster, so it logs first, and what it logs reaches the target at once.
SCRIPT = """
import torch, outpace
torch.manual_seed(outpace.rank())
model = torch.nn.Linear(2, 1)
model, optimizer = outpace.attach(model, torch.optim.SGD(model.parameters(), lr=0.1))
for step in range(1, 6):
    model(torch.rand(1, 2)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    outpace.log(accuracy=min(0.9, 0.15 * step + 0.45 * outpace.rank()))
"""
CLUSTER = {
    "workers": 2,
    "compute": {"kind": "lognormal", "mean_s": 0.2, "cv": 0.3, "factors": [1.5, 1.0]},
    "network": {"latency_s": 0.001},
}
KINDS = {"BSP": "bsp", "ASP": "asp"}
SEEDS = (0, 1)


def advised(config, goal, seeds=SEEDS, every_s=None):
    """Return the times of the trials of a study, by strategy and seed."""
    problem = problem_of(source_of(config, None, {}), goal, None, ["asp"])
    rate = problem.rate or 1.0
    trials = [
        Trial(SEARCH, name, rate, seed, 5.0, every_s=every_s) for name in KINDS for seed in seeds
    ]
    with Pool(1) as pool:
        curves = dict(carry_out(trials, problem, pool, Budget()))
    return {(t.candidate, t.seed): c.time_to(goal.level, 5.0) for t, c in curves.items()}


def compared(config, seeds=2):
    """Return the times of `outpace.compare`, by strategy and seed."""
    variants = [{"name": name, "sync": {"kind": kind}} for name, kind in KINDS.items()]
    rows = outpace.compare(config, variants=variants, seeds=seeds)
    return {(r.variant.name, r.seed): r.summary["time_to_target_s"] for r in rows}


def test_advice_and_comparison_agree_on_a_script_that_logs_on_every_worker(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    config = {**CLUSTER, "task": {"kind": "script", "path": str(path)}, "target": {"accuracy": 0.6}}
    found = advised(config, Target(accuracy=0.6), seeds=(0,))  # each trial stops at the target
    assert {key: each.time_s for key, each in found.items()} == compared(config, seeds=1)
    assert all(each.reached for each in found.values())


def test_advice_and_comparison_agree_on_a_task():
    task = {"kind": "quadratic", "eigenvalues": [1.0, 0.3], "noise": 0.02}
    config = {**CLUSTER, "task": task, "optimizer": {"lr": 0.1}, "stop": {"virtual_time_s": 5.0}}
    found = advised(config, Target(loss=0.3), every_s=0.25)
    config |= {"target": {"loss": 0.3}, "evaluate": {"every_s": 0.25}}
    assert {key: each.time_s for key, each in found.items()} == compared(config)
    assert all(each.reached for each in found.values())
