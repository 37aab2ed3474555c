"""Members of a group that share memory, one of which is killed in the middle of an all-reduce.

A module of its own, because it is imported in processes without the tests.
"""

from __future__ import annotations

import os
import signal
from multiprocessing.connection import Connection
from typing import Any

import torch
from torch.distributed import FileStore

from outpace.real.collective import group as groups
from outpace.real.collective import swapping
from outpace.real.collective.group import Group, GroupSettings
from outpace.real.collective.shared_buffers import SharedBuffers
from outpace.real.collective.sums_in_memory import add_share


class Killed:
    """Kills its process when this operation of a member begins."""

    def __init__(self, at: str) -> None:
        self._at, self.met = at, 0

    def meet(self, group: Any, said: bool = False) -> int:
        if self._at == f"meeting {self.met}":
            os.kill(os.getpid(), signal.SIGKILL)
        self.met += 1
        return swapping.meet(group, said)

    def add_share(self, *arguments: Any) -> bool:
        if self._at == "adding":
            os.kill(os.getpid(), signal.SIGKILL)
        return add_share(*arguments)


def take_part(folder: str, me: int, at: str, said: Connection) -> None:
    """Say which all-reduces came through, and how the last one ended."""
    store = FileStore(f"{folder}/store", 3)
    group = Group(GroupSettings(store, "127.0.0.1", "gloo"), 0, range(3), me)
    memory = SharedBuffers([(70_001, torch.float32)])
    assert group.shares(memory, print)
    (values,) = memory.tensors
    group.all_reduce_in(memory, lambda _, part: values[part].fill_(1.0))
    said.send(values.unique().tolist())
    if at:
        killed = Killed(at)
        groups.meet, groups.add_share = killed.meet, killed.add_share
    try:
        group.all_reduce_in(memory, lambda _, part: values[part].fill_(1.0))
    except RuntimeError as error:
        said.send(type(error).__name__)
