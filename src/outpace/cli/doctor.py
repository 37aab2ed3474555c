"""outpace doctor: what a bug report should say about this machine."""

from __future__ import annotations

import json
import os
import platform
import shutil
import socket
import tempfile
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from outpace.cli.base import app, echo, say

_NEEDED: Final = ("torch", "numpy", "pyarrow")
_SHARED: Final = Path("/dev/shm")


@app.command()
def doctor(
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the findings as JSON, and nothing else.")
    ] = False,
) -> None:
    """Show versions, hardware, and whether Outpace can work here, in the current folder.

    Put it into a bug report. The exit code is 1 if something makes Outpace unusable.
    """
    problems: list[str] = []
    found = {
        **_versions(problems),
        "system": platform.platform(),
        "cores": _cores(),
        "memory": _memory(),
        "gpu": "unknown" if problems else _gpu(),
        "loopback": _works(_open_port, problems, "allow programs to listen on 127.0.0.1"),
        "folder": _works(_write_file, problems, "go to a folder that you may write to, with space"),
        "shared memory": _shared_memory(),
    }
    if as_json:
        echo(json.dumps({**found, "problems": problems}, indent=2))
    else:
        width = max(map(len, found))
        for name, value in found.items():
            echo(f"{name:{width}}  {value}")
        say("error", problems)
    if problems:
        raise typer.Exit(1)


def _versions(problems: list[str]) -> dict[str, str]:
    found = {"outpace": version("outpace"), "python": platform.python_version()}
    for name in _NEEDED:
        try:
            module: Any = import_module(name)
            found[name] = str(module.__version__)
        except Exception as error:  # a broken build may raise anything
            found[name] = "cannot be imported"
            remedy = f"pip install --force-reinstall {name}"
            problems.append(f"{name} cannot be imported ({error}): {remedy}")
    try:
        found["ray"] = version("ray")
    except PackageNotFoundError:
        found["ray"] = "not installed"
    return found


def _cores() -> str:
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return (
        f"{os.cpu_count()}, of which this process may use {usable}; load {os.getloadavg()[0]:.1f}"
    )


def _memory() -> str:
    from outpace.support.memory import free_bytes

    free = free_bytes()
    return "unknown" if free is None else f"{free / 2**30:.1f} GiB free"


def _gpu() -> str:
    import torch

    build = torch.version.cuda or getattr(torch.version, "hip", None)
    if build is None:
        return "none: this torch is built for CPUs alone"
    names = [torch.cuda.get_device_name(place) for place in range(torch.cuda.device_count())]
    return f"{', '.join(names) or 'none found'}; torch is built for {build}"


def _works(attempt: Callable[[], None], problems: list[str], remedy: str) -> str:
    """Return whether an attempt succeeded, as text; add an error to `problems`, with the remedy."""
    try:
        attempt()
    except OSError as error:
        problems.append(f"{error}: {remedy}")
        return f"fails: {error}"
    return "works"


def _open_port() -> None:
    """Listen at a free port of the loopback address, and connect to it."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection(server.getsockname(), timeout=5.0).close()


def _write_file() -> None:
    with tempfile.TemporaryFile(dir=".") as file:
        file.write(b"\0" * 2**20)


def _shared_memory() -> str:
    if not _SHARED.is_dir():
        return f"there is no {_SHARED}"
    usage = shutil.disk_usage(_SHARED)
    return f"{_SHARED}: {usage.free / 2**30:.1f} of {usage.total / 2**30:.1f} GiB free"
