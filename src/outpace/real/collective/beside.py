"""P_s as a process that shares memory with P_t (HPSGD, section 3.1), rather than a thread.

The process has the group; what it adds up lies in a file that both have mapped. It is a program
of its own, `python -m outpace.real.collective.beside`, that obeys lines on its standard input,
answers each with one, and ends when there are no more.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from outpace.errors import ConfigError
from outpace.real.collective.group import Group, GroupSettings


class SharedMemory:
    """Tensors that a process beside this one can have too. Raises ConfigError if there are none."""

    def __init__(self) -> None:
        if not hasattr(os, "memfd_create"):
            raise ConfigError("sync.synchronizer: process is for Linux, which lets processes share")
        self._places: dict[int, tuple[str, int, str]] = {}  # address -> file, elements, dtype

    def empty(self, elements: int, dtype: torch.dtype) -> torch.Tensor:
        """A new one, of zeros; shape (elements,)."""
        # A file without a name: nothing of it is left when both processes are gone.
        path = f"/proc/{os.getpid()}/fd/{os.memfd_create('outpace')}"
        tensor: torch.Tensor = torch.from_file(path, shared=True, size=elements, dtype=dtype)
        name = str(dtype).removeprefix("torch.")
        self._places[tensor.untyped_storage().data_ptr()] = path, elements, name
        return tensor

    def place_of(self, view: torch.Tensor) -> dict[str, Any]:
        """In which of them it lies, and where."""
        path, elements, dtype = self._places[view.untyped_storage().data_ptr()]
        start = view.storage_offset()
        return {
            "file": path,
            "elements": elements,
            "dtype": dtype,
            "start": start,
            "stop": start + view.numel(),
        }


class GroupBeside:
    """As `Group`, of tensors in shared memory. Raises RuntimeError where that one does."""

    def __init__(
        self,
        memory: SharedMemory,
        settings: GroupSettings,
        generation: int,
        members: Sequence[int],
        me: int,
    ) -> None:
        self._memory = memory
        self._process = subprocess.Popen(
            [sys.executable, "-m", "outpace.real.collective.beside"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._ask(
            {
                "store": settings.store,
                "host": settings.host,
                "backend": settings.backend,
                "deterministic": settings.deterministic,
                "timeout_s": settings.timeout_s,
                "generation": generation,
                "members": list(members),
                "me": me,
                "threads": torch.get_num_threads(),
            }
        )

    def all_reduce(self, pieces: Iterable[torch.Tensor]) -> None:
        """See `Group`."""
        waiting = 0
        for piece in pieces:
            self._tell({"do": "all-reduce", **self._memory.place_of(piece)})
            waiting += 1
        for _ in range(waiting):
            self._answer()

    def broadcast(self, values: torch.Tensor, source: int) -> None:
        """See `Group`."""
        self._ask({"do": "broadcast", "source": source, **self._memory.place_of(values)})

    def swap(self, mine: torch.Tensor, theirs: torch.Tensor, other: int, tag: int) -> None:
        """See `Group`."""
        raise RuntimeError("a process beside the training swaps nothing")

    def close(self) -> None:
        """End the process, whoever waits for it."""
        self._process.kill()
        self._process.wait()

    def _ask(self, what: dict[str, Any]) -> None:
        self._tell(what)
        self._answer()

    def _tell(self, what: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(what).encode() + b"\n")
            self._process.stdin.flush()
        except OSError as error:
            raise RuntimeError(f"the process that synchronises has ended: {error}") from None

    def _answer(self) -> None:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the process that synchronises has ended")
        if error := json.loads(line):
            raise RuntimeError(error)


def main() -> None:
    """The process itself."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the launcher's business
    lines = iter(sys.stdin)
    known: dict[str, torch.Tensor] = {}
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever else is printed here is no answer

    def answer(error: str) -> None:
        answers.write(json.dumps(error) + "\n")
        answers.flush()

    def tried(what: Callable[[], None]) -> None:
        try:
            what()
        except RuntimeError as error:
            answer(str(error))
        else:
            answer("")

    first = json.loads(next(lines))
    torch.set_num_threads(first["threads"])
    store = tuple(first.pop("store"))
    place = {name: first[name] for name in ("host", "backend", "deterministic", "timeout_s")}
    settings = GroupSettings(store, **place)
    try:
        group = Group(settings, first["generation"], first["members"], first["me"])
    except RuntimeError as error:
        answer(str(error))
        return
    answer("")
    for line in lines:
        what = json.loads(line)
        if what["file"] not in known:
            known[what["file"]] = torch.from_file(
                what["file"],
                shared=True,
                size=what["elements"],
                dtype=getattr(torch, what["dtype"]),
            )
        values = known[what["file"]][what["start"] : what["stop"]]
        if what["do"] == "broadcast":
            tried(lambda: group.broadcast(values, what["source"]))  # noqa: B023  # called at once
        else:
            tried(lambda: group.all_reduce([values]))  # noqa: B023


if __name__ == "__main__":
    main()
