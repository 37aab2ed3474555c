"""What the nodes of a cluster report about themselves. Does not use Ray."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version

from outpace.support.version import __version__


@dataclass(frozen=True, slots=True)
class Survey:
    """What a process finds on its node: versions, and which of the wanted paths are missing.

    torch: version of torch without the variant (`+cpu`).
    """

    outpace: str
    python: str
    torch: str
    missing: tuple[str, ...] = ()


def survey_here(paths: Sequence[str] = ()) -> Survey:
    """Return a survey of this machine, without importing torch."""
    # `Path.exists` raises PermissionError for a path in a folder that cannot be read.
    missing = tuple(path for path in paths if not os.path.exists(path))
    torch = version("torch").partition("+")[0]
    return Survey(__version__, platform.python_version(), torch, missing)


def problem_of(there: Survey, here: Survey, token: str = "") -> str:
    """Return a text that says why a node cannot take part; empty if it can.

    token: a file that the node need not have.
    """
    if there.outpace != here.outpace:
        return f"has Outpace {there.outpace}, and this machine {here.outpace}: install the same"
    if there.python.split(".")[:2] != here.python.split(".")[:2]:
        return f"has Python {there.python}, and this machine {here.python}: use the same"
    files = [path for path in there.missing if path != token]
    if files:
        return (
            f"does not have {', '.join(files)}: copy it there, or put it on storage that all nodes "
            "reach"
        )
    if there.torch != here.torch:
        return f"has torch {there.torch}, and this machine {here.torch}: install the same"
    return ""
