"""What is measured on a GPU."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import torch
from benchmarks.rows import Row, row

import outpace
from outpace.experiment.running import run
from outpace.support.words import plural

SCRIPT: Final = Path(__file__).parent / "trains.py"
STRATEGIES: Final[dict[str, dict[str, Any]]] = {
    "bsp": {"sync": {"kind": "bsp"}, "servers": 1},
    "ssgd": {"sync": {"kind": "ssgd"}},
    "local-sgd, every 4": {"sync": {"kind": "local-sgd", "every": 4}},
    "hpsgd": {"sync": {"kind": "hpsgd"}},
}
CLOSE: Final = 1e-6  # elements of gradients
BATCHED: Final = 1e-4  # of the norm of the parameters' change
_WARM: Final = 3  # steps that are not measured
_WORKERS: Final = 8  # in virtual time

Say = Callable[[str], object]


def differences(out: Path, device: str, say: Say, counts: Sequence[int] = (1, 2)) -> list[Row]:
    """Return the differences of gradients with and without a run: elements of all steps."""
    settings = ["--device", device, "--gradients"]
    alone = _alone(out / "alone", settings)
    rows = []
    for workers in counts:
        say(f"gradients: {plural(workers, 'worker')}, bsp")
        found = _run(out / f"workers-{workers}", settings, workers, STRATEGIES["bsp"])
        # With two workers only the first gradient equals the plain script's, since later steps use
        # the mean.
        count = len(alone["gradients"]) if workers == 1 else 8
        pairs = zip(found[0]["gradients"][:count], alone["gradients"], strict=False)
        apart = max(float((one - other).abs().max()) for one, other in pairs)
        what = "all steps" if workers == 1 else "the first step"
        rows.append(
            row(
                f"largest difference of gradients, {plural(workers, 'worker')}, {what}",
                [apart],
                unit="",
                goal=CLOSE,
            )
        )
    return rows


def steps(out: Path, device: str, say: Say, count: int, width: int) -> list[Row]:
    """Return the seconds of a step, without Outpace and by strategy."""
    settings = ["--device", device, "--steps", str(count), "--width", str(width)]
    megabytes = 4 * (width + 1) * width * 4 / 1e6
    say("steps: without a run")
    rows = [_step_row(f"a step of {megabytes:.0f} MB, without a run", [_alone(out, settings)])]
    for name, strategy in STRATEGIES.items():
        for workers in (1, 2) if name == "bsp" else (2,):
            say(f"steps: {plural(workers, 'worker')}, {name}")
            found = _run(out / f"{name[:4]}-{workers}", settings, workers, strategy)
            rows.append(_step_row(f"the same, {name}, {plural(workers, 'worker')}", found))
    return rows


def virtual(device: str, say: Say, iterations: int) -> list[Row]:
    """Return speed of gradients in virtual time on the GPU, and differences from the CPU."""
    config: dict[str, Any] = {
        "task": {"kind": "digits-cnn"},
        "workers": _WORKERS,
        "servers": 1,
        "sync": {"kind": "bsp"},
        "compute": {"kind": "constant", "mean_s": 1.0},
        "optimizer": {"kind": "sgd", "lr": 0.05},
        "stop": {"iterations": iterations},
    }
    found, seconds = [], []
    executors: list[dict[str, Any]] = [
        {"kind": "serial"},
        {"kind": "batched", "width": _WORKERS, "device": device},
    ]
    for executor in executors:
        say(f"virtual: {executor['kind']}")
        began = time.monotonic()
        found.append(outpace.simulate({**config, "executor": executor}).parameters)
        seconds.append(time.monotonic() - began)
    serial, batched = (torch.cat([p.reshape(-1) for p in each.values()]) for each in found)
    apart = float((serial - batched).norm() / serial.norm())
    gradients = iterations * _WORKERS
    return [
        row("gradients in virtual time, on the CPU", [gradients / seconds[0]], unit="/s"),
        row("the same in batches on the GPU", [gradients / seconds[1]], unit="/s"),
        row("their parameters apart, of the norm", [apart], unit="", goal=BATCHED),
    ]


def _step_row(what: str, workers: Sequence[dict[str, Any]]) -> Row:
    return row(what, [1e3 * s for each in workers for s in each["steps_s"][_WARM:]], unit="ms")


def _alone(out: Path, settings: Sequence[str]) -> dict[str, Any]:
    """Return the data that the script writes without a run."""
    out.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, str(SCRIPT), str(out), *settings]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{SCRIPT.name} failed: {done.stderr.strip().splitlines()[-1]}")
    return _written(out, 1)[0]


def _run(
    out: Path, settings: Sequence[str], workers: int, strategy: dict[str, Any]
) -> list[dict[str, Any]]:
    """Return the data that the workers of a run write."""
    out.mkdir(parents=True, exist_ok=True)
    task = {"kind": "script", "path": str(SCRIPT), "arguments": [str(out.resolve()), *settings]}
    run({"task": task, "workers": workers, "probe": False, **strategy})
    return _written(out, workers)


def _written(out: Path, workers: int) -> list[dict[str, Any]]:
    return [torch.load(out / f"{rank}.pt") for rank in range(workers)]
