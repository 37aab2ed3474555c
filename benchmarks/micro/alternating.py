"""A training script for the benchmarks: steps of DDP in Outpace and on Gloo alone, in turn.

Two models take their steps alternately in the same two processes, so that other programs on the
machine slow both down equally. Rank 0 writes the seconds of the steps to FOLDER/steps.json. A step
sleeps instead of computing, as in `steps`.
"""

from __future__ import annotations

import argparse
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from benchmarks.micro.steps import WARM_UP, GivenModel, step_s

c10d: Any = dist  # parts of it have no type annotations


def gloo_alone(folder: Path) -> Any:
    """Return a process group of both processes that is unknown to Outpace."""
    store, rank = c10d.FileStore(str(folder / "store"), 2), dist.get_rank()
    options = c10d.ProcessGroupGloo._Options()
    options._devices = [c10d.ProcessGroupGloo.create_device(hostname="127.0.0.1")]
    options._timeout = timedelta(seconds=60)
    group = c10d.ProcessGroup(store, rank, 2)
    group._set_default_backend(c10d.ProcessGroup.BackendType.GLOO)
    gloo = c10d.ProcessGroupGloo(store, rank, 2, options)
    group._register_backend(torch.device("cpu"), c10d.ProcessGroup.BackendType.GLOO, gloo)
    group._set_group_name("alone")
    group._set_group_desc("alone")
    return group


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("elements", type=int)
    parser.add_argument("steps", type=int)
    parser.add_argument("milliseconds", type=float)
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    trained = []
    for group in (None, gloo_alone(options.folder)):
        model = torch.nn.parallel.DistributedDataParallel(
            GivenModel(options.elements, tensors=10),
            process_group=group,
            gradient_as_bucket_view=True,
        )
        trained.append((model, torch.optim.SGD(model.parameters(), lr=0.1)))
    seconds: list[list[float]] = [[], []]
    for number in range(WARM_UP + options.steps):
        for which in (0, 1) if number % 2 else (1, 0):
            seconds[which].append(step_s(*trained[which], options.milliseconds / 1e3))
    if dist.get_rank() == 0:
        found = [each[WARM_UP:] for each in seconds]
        (options.folder / "steps.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
