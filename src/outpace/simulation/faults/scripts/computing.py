"""The parts of scripts in virtual time whose processes fail, with servers and without."""

from __future__ import annotations

from collections.abc import Sequence

from outpace.blocks.block import Block
from outpace.errors import RunError
from outpace.simulation.faults.failing import FailingRun
from outpace.simulation.faults.processes import Process, computed
from outpace.simulation.scripts.collectives.memory import CallMemory
from outpace.simulation.scripts.collectives.messages import Joined
from outpace.simulation.scripts.nodes import ScriptComputing
from outpace.simulation.scripts.runs import ScriptRun
from outpace.support.units import nanoseconds


class FailingScripts(FailingRun, ScriptRun):
    """A run of scripts, which cannot lose a process whose script has collectives of its own."""

    _has_collectives = False

    def joined(self, worker: int, call: Joined, memory: CallMemory) -> None:
        self._has_collectives = True
        super().joined(worker, call, memory)

    def _require_replaceable(self, process: Process, how: str) -> None:
        if self._has_collectives:
            raise RunError(
                f"{process.name} {how}, and the scripts use collectives of their own, which a new "
                "process cannot take part in"
            )


class FailingScriptComputing(ScriptComputing):
    """The part of the context of a script's worker whose process may stand still or be slow."""

    _process: Process

    def _duration_s(self, iteration: int) -> float:
        return self._process.stretched(super()._duration_s(iteration))

    async def _spend(self, duration_s: float) -> None:
        await computed(self._kernel, self._process, nanoseconds(duration_s))

    async def execute(self, parameters: Sequence[Block], iteration: int) -> Sequence[Block | None]:
        await self._process.awake()
        return await super().execute(parameters, iteration)
