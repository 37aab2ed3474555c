"""Another number of workers and of servers for a run that goes on, one after the other."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import TYPE_CHECKING

from outpace.errors import ConfigError

if TYPE_CHECKING:
    from outpace.real.coordinator.moving import MovingServers, Told
    from outpace.real.coordinator.scaled_workers import ScaledWorkers
    from outpace.real.net.sparse_log import Log


def scale_both(
    moving: MovingServers,
    scaling: ScaledWorkers,
    servers: int,
    workers: int,
    told: Told | None,
    log: Log,
    without: Collection[str] = (),
) -> str:
    """Go on with another number of servers, and then of workers; return what is done first.

    The servers come first, so that more workers find the servers that are to serve them. If they
    stay as they are, the workers do, too.

    told: called when both are done, or something stays as it is. without: see `MovingServers` and
    `ScaledWorkers`.

    Raises:
        ConfigError: if one of them cannot be; then nothing is done.
    """
    moving.require_possible(servers)
    scaling.require_possible(workers, without)

    def tell_both(before: str, *, is_done: bool, text: str) -> None:
        if told is not None:
            told(is_done=is_done, text=f"{before}; {text}")

    def go_on(*, is_done: bool, text: str) -> None:
        why = f"the number of workers stays {scaling.workers}"
        if is_done:
            try:
                scaling.scale(workers, partial(tell_both, text), without)
                return
            except ConfigError as error:
                why = f"{why}: {error}"
                log(why)  # `told` may be None
        tell_both(text, is_done=False, text=why)

    return moving.scale(servers, go_on, without)
