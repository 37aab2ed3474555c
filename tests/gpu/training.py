"""Runs scripts on a device, and the same training in plain PyTorch."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import torch
from tests.support.paths import SCRIPTS

from outpace.experiment.running import run

ON_GPU = runpy.run_path(str(SCRIPTS / "on_gpu.py"))
STEPS = ON_GPU["STEPS"]


def script(name: str, folder: Path, *arguments: str) -> dict[str, Any]:
    path = str(SCRIPTS / name)
    return {"kind": "script", "path": path, "arguments": [str(folder), *arguments]}


def launch(folder: Path, case: str, device: str, **changes: Any) -> list[dict[str, Any]]:
    """Run a case in real processes; return the results that its workers have written."""
    workers = changes.setdefault("workers", 1)
    changes.setdefault("sync", {"kind": "bsp"})
    if changes["sync"]["kind"] == "bsp":
        changes.setdefault("servers", 2)
    run({"task": script("on_gpu.py", folder, case, device), "probe": False, **changes})
    return [torch.load(folder / f"{rank}.pt") for rank in range(workers)]


def plain(case: str, device: str) -> dict[str, Any]:
    """Return the results of a case in this process, without Outpace."""
    found = ON_GPU["CASES"][case](lambda model, optimizer: (model, optimizer), device, 0)
    parameters = ON_GPU["parameters_of"](found["model"])
    return {"gradients": found["gradients"], "parameters": parameters}


def require_close(found: Any, expected: Any, within: float) -> None:
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=within)


def mean_gradient_training(device: str, workers: int, *, lr: float, momentum: float) -> list[Any]:
    """Return the parameters after steps along the mean of the gradients of all batches."""
    model = ON_GPU["net"](device)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=momentum)
    for step in range(STEPS):
        optimizer.zero_grad()
        for rank in range(workers):
            (ON_GPU["loss_of"](model, step, rank, device) / workers).backward()
        optimizer.step()
    return ON_GPU["parameters_of"](model)


def averaged_training(device: str, workers: int, every: int, steps: int) -> list[Any]:
    """Return the parameters of workers that train alone and average every `every` steps."""
    models = [ON_GPU["net"](device) for _ in range(workers)]
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in models]
    for step in range(steps):
        for rank, (model, optimizer) in enumerate(zip(models, optimizers, strict=True)):
            optimizer.zero_grad()
            ON_GPU["loss_of"](model, step, rank, device).backward()
            optimizer.step()
        if (step + 1) % every == 0:
            with torch.no_grad():
                for same in zip(*(model.parameters() for model in models), strict=True):
                    mean = torch.stack(list(same)).mean(dim=0)
                    for parameter in same:
                        parameter.copy_(mean)
    return ON_GPU["parameters_of"](models[0])


WITHOUT_SERVERS = [{"kind": "ssgd"}, {"kind": "local-sgd", "every": 3}, {"kind": "hpsgd"}]


def require_averaged(folder: Path, device: str, sync: dict[str, Any]) -> None:
    """Require that two workers train by a strategy in the same way as without Outpace."""
    here = {"own": "cuda:0", "pretend": "cpu"}.get(device, device)
    case = "sgd" if sync["kind"] == "ssgd" else "plain_sgd"
    one, other = launch(folder, case, device, workers=2, sync=sync)
    if sync["kind"] == "hpsgd":  # the gradients in a step depend on timing
        first = ON_GPU["parameters_of"](ON_GPU["net"]("cpu"))
        assert all(bool(p.isfinite().all()) for p in one["parameters"])
        assert not any(torch.equal(a, b) for a, b in zip(one["parameters"], first, strict=True))
    elif sync["kind"] == "ssgd":
        expected = mean_gradient_training(here, 2, lr=0.1, momentum=0.9)
        require_close(one["parameters"], expected, 1e-5)
    else:
        expected = averaged_training(here, 2, every=sync["every"], steps=12)
        require_close(one["parameters"], expected, 1e-5)
    require_close(one["parameters"], other["parameters"], 0)


def ddp(folder: Path, device: str, workers: int, sync: dict[str, Any]) -> list[dict[str, Any]]:
    servers = {"servers": 1} if sync["kind"] == "bsp" else {}
    task = script("ddp_on_gpu.py", folder, device)
    run({"task": task, "workers": workers, "probe": False, "sync": sync, **servers})
    return [torch.load(folder / f"{rank}.pt") for rank in range(workers)]


def require_collectives(found: list[dict[str, Any]]) -> None:
    """Require the results by hand: rank n gives (10 n, 10 n + 1)."""
    workers = len(found)
    everyone = [10.0 * rank + k for rank in range(workers) for k in range(2)]
    total = sum(everyone[::2])
    for rank, each in enumerate(found):
        assert each["all_reduce"].tolist() == [total / workers, total / workers + 1]
        assert each["broadcast"].tolist() == [0.0, 1.0]
        assert each["all_gather"].tolist() == each["all_gather_into"].tolist() == everyone
        assert each["all_to_all"].tolist() == [x + 100 * rank for x in everyone]
        shares = [total, total + workers]
        assert each["reduce_scatter"].tolist() == shares
