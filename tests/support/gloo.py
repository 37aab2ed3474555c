"""Runs a script as torchrun does, with Gloo and without Outpace, for comparisons."""

from __future__ import annotations

import os
import runpy
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from outpace.support.processes import forking


def run_with_gloo(
    script: Path, arguments: Sequence[str], workers: int, *, output: Path | None = None
) -> None:
    """Run the script in a process for each worker, and wait for all.

    Args:
        output: the file for the output of rank 0; None: this process' standard output.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    started = [
        forking.start(
            f"rank-{rank}",
            _run,
            str(script),
            list(arguments),
            rank,
            workers,
            port,
            output if rank == 0 else None,
        )
        for rank in range(workers)
    ]
    for process in started:
        process.join(60)
        assert process.exitcode == 0


def _run(
    script: str,
    arguments: list[str],
    rank: int,
    workers: int,
    port: int,
    output: Path | None,
) -> None:
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(workers), LOCAL_RANK=str(rank))
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    # As torchrun does. accelerate takes more threads without it, and the last digit changes.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.argv = [script, *arguments]
    if output is not None:
        sys.stdout = output.open("w", buffering=1)
    # The group ends with the process: some processes hang while they drop a model of
    # DistributedDataParallel whose group was destroyed before (torch 2.13, on a busy machine).
    torch.distributed.destroy_process_group = lambda group=None: None  # type: ignore[assignment]
    runpy.run_path(script, run_name="__main__")
    os._exit(0)
