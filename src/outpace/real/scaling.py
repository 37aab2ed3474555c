"""Takes the requests of `outpace scale` to a run on real processes, and answers them."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from outpace.errors import ConfigError
from outpace.record.requests import Answer, Requests, ScaleRequest

if TYPE_CHECKING:
    from outpace.real.coordinator.coordinator import Coordinator

_EVERY_S: Final = 0.25


class ScaleRequests:
    """Has the kernel of the coordinator look for requests in the folder of its run."""

    def __init__(self, folder: Path) -> None:
        self._requests = Requests(folder)

    def attach(self, coordinator: Coordinator) -> None:
        """Take requests for this attempt, until its kernel is closed."""
        coordinator.kernel.spawn(self._keep(coordinator), "requests to scale", daemon=True)

    async def _keep(self, coordinator: Coordinator) -> None:
        while True:
            for name, request in self._requests.take():
                self._do(coordinator, name, request)
            await coordinator.kernel.sleep(_EVERY_S)

    def _do(self, coordinator: Coordinator, name: str, request: ScaleRequest) -> None:
        told = partial(self._told, name)
        try:
            coordinator.scale(request.servers, request.workers, told)
        except ConfigError as error:
            told(is_done=False, text=str(error))

    def _told(self, name: str, *, is_done: bool, text: str) -> None:
        self._requests.answer(name, Answer(is_done, text))
