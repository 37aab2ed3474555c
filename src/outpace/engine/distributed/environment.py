"""The environment variables of a script's process, as torchrun sets them, and their check."""

from __future__ import annotations

import ast
import os
from pathlib import Path

from outpace.errors import ConfigError
from outpace.support.place import HERE


def set_environment(rank: int, size: int, *, keeps: bool = False) -> None:
    """Set the variables of torchrun on one machine. Nothing listens at the master's address.

    OMP_NUM_THREADS becomes 1, unless it is set.

    Args:
        rank: number of the worker.
        size: number of workers.
        keeps: True: do not change torchrun's variables that are set already.
    """
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    values = {
        "RANK": str(rank),
        "WORLD_SIZE": str(size),
        "LOCAL_RANK": str(rank),
        "LOCAL_WORLD_SIZE": str(size),
        "GROUP_RANK": "0",
        "GROUP_WORLD_SIZE": "1",
        "ROLE_RANK": str(rank),
        "ROLE_WORLD_SIZE": str(size),
        "ROLE_NAME": "default",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29500",
        "TORCHELASTIC_RUN_ID": "outpace",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
        "TORCHELASTIC_USE_AGENT_STORE": "False",
    }
    for name, value in values.items():
        if not (keeps and name in os.environ):
            os.environ[name] = value


def calls_attach(script: Path) -> bool:
    """Return whether the text of a script calls `outpace.attach` and makes no process group.

    Libraries such as accelerate make a process group as soon as they see torchrun's variables, so a
    script that uses such a library with `attach` must not have these variables.
    """
    try:
        tree = ast.parse(script.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return False  # the error is reported when the script runs
    called = (each.func for each in ast.walk(tree) if isinstance(each, ast.Call))
    names = {ast.unparse(each) for each in called if isinstance(each, ast.Attribute | ast.Name)}
    if any(name.rpartition(".")[2] == "init_process_group" for name in names):
        return False
    return "outpace.attach" in names or (
        "attach" in names
        and any(
            isinstance(each, ast.ImportFrom) and each.module == "outpace" for each in ast.walk(tree)
        )
    )


def require_own_place(line: str, name: str, given: int | None, here: int) -> None:
    """Raise ConfigError for a rank or a number of processes that is not this process's.

    Args:
        line: line of the call of `init_process_group`.
        name: rank or world_size. given: the argument, -1 or None if there is none; then torch uses
            the environment variable, which the script may have set.
        here: the value for this process.
    """
    how, variable = f"{name}={given}", os.environ.get(name.upper(), "")
    if given in (-1, None):
        if not variable.isdecimal():
            return
        how, given = f"{name.upper()}={variable} in its environment", int(variable)
    if given != here:
        raise ConfigError(
            f"init_process_group at {line} has {how}, but this is process {HERE.number} of the "
            f"{HERE.workers} workers of this run: take rank and world size from the variables RANK "
            "and WORLD_SIZE, as under torchrun, or run with another --workers"
        )
