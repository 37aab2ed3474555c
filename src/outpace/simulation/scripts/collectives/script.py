"""The collectives of a script in virtual time, in the script's process.

There is no other thread in the script's process. When a collective begins, its tensors are put into
shared memory, and a message is sent to the simulation. The script waits for the simulation when it
needs the result. So the simulation always knows whether the script computes or waits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from typing import Any

import torch

from outpace.engine.distributed.call import Call, Collectives, CollectiveWork, not_compiled
from outpace.engine.scripts.ending import RunOver
from outpace.errors import ConfigError
from outpace.simulation.scripts.child.pipe import ScriptPipe
from outpace.simulation.scripts.messages import Awaits, Done, Joined
from outpace.simulation.scripts.shared_memory import CallMemory, fill


class VirtualCollectives(Collectives):
    """The collectives of this worker's script.

    Attributes:
        progress: returns the completed share of the iteration's computation when a call begins.
        waiting: returns a context for the time in which the script waits.
    """

    def __init__(self, pipe: ScriptPipe, memory: CallMemory, rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        self._pipe, self._memory = pipe, memory
        self.progress: Callable[[Call], float] = lambda _: 0.0
        self.waiting: Callable[[], AbstractContextManager[None]] = nullcontext

    def begin(self, call: Call) -> VirtualWork:
        """Tell the simulation about a collective.

        Raises:
            ConfigError: if the simulation cannot carry it out.
            RunOver: if the run has ended.
        """
        if self._pipe.is_over:  # in code of the script that runs while it exits
            raise RunOver(0)
        dtypes = {tensor.dtype for tensor in (*call.inputs, *call.outputs)}
        if len(dtypes) > 1:
            names = ", ".join(sorted(map(str, dtypes)))
            raise ConfigError(f"{call}: its tensors must have one dtype, not {names}")
        size = max(sum(call.parts), call.elements) * call.dtype.itemsize
        place = self._memory.take(size)
        slot = self._memory.view(place, sum(call.parts), call.dtype)
        with torch.no_grad():
            fill(slot, [tensor.detach().reshape(-1) for tensor in call.inputs])
        self._pipe.send(Joined(**call.attributes(), place=place, progress=self.progress(call)))
        return VirtualWork(self, call, place)

    def take(self, call: Call, place: int) -> None:
        """Wait for the end of a collective, and copy the result into its outputs."""
        with self.waiting():
            self._pipe.send(Awaits(call.number))
            done = self._pipe.receive()
        assert isinstance(done, Done)
        if done.has_outputs:
            self._copy(call.outputs, place)
        self._memory.give_back(place)

    def _copy(self, outputs: Sequence[torch.Tensor], place: int) -> None:
        with torch.no_grad():
            for output in outputs:
                value = self._memory.view(place, output.numel(), output.dtype)
                output.copy_(value.view(output.shape))
                place += output.numel() * output.dtype.itemsize


@not_compiled
class VirtualWork(CollectiveWork):
    """A collective that has begun."""

    def __init__(self, collectives: VirtualCollectives, call: Call, place: int) -> None:
        super().__init__(call.outputs)
        self._collectives, self._call, self._place = collectives, call, place
        self._is_done = False
        self._future: torch.futures.Future[Any] = torch.futures.Future()

    def wait(self, timeout: timedelta | None = None) -> bool:
        if not self._is_done:
            self._collectives.take(self._call, self._place)
            self._is_done = True
            self._future.set_result(self.outputs)
        return True

    def is_completed(self) -> bool:
        """Wait for the end and return True: the virtual time between two calls is not known."""
        return self.wait()

    def get_future(self) -> torch.futures.Future[Any]:
        if self._call.bucket is None:
            self.wait()
        return self._future
