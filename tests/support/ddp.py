"""Runs DDP scripts by themselves with Gloo, as torchrun does."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from tests.support.warm import Warm


def started_by_torchrun(warm: Warm, script: Path, *arguments: str, folder: Path) -> list[str]:
    """Run two processes of the script with the variables that torchrun sets.

    Returns:
        The lines that rank 0 prints.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    processes = []
    with (folder / "rank-0.txt").open("w") as output, (folder / "rank-1.txt").open("w") as other:
        for rank, stream in enumerate((output, other)):
            place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2}
            more = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OMP_NUM_THREADS": 1}
            variables = {key: str(value) for key, value in {**place, **more}.items()}
            processes.append(
                warm.script(
                    script,
                    *arguments,
                    cwd=folder,
                    env={**os.environ, **variables},
                    stdout=stream.fileno(),
                )
            )
        errors = "".join(process.communicate()[1] for process in processes)
    assert [process.returncode for process in processes] == [0, 0], errors
    return (folder / "rank-0.txt").read_text().splitlines()
