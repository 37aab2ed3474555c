"""Scripts with collectives of their own, whose workers and servers stay as they are."""

from __future__ import annotations

from collections.abc import Mapping

from outpace.real.net.messages import JoinRun
from outpace.sync.messages import worker_name


def why_collectives(joined: Mapping[str, JoinRun]) -> str:
    """Return why a run with such scripts cannot have other processes; empty if it has none.

    A worker that waits in a collective hears of no other servers, and the others may wait for it.

    joined: what processes have said, by name.
    """
    if not joined[worker_name(0)].collects:
        return ""
    return (
        "its script has called init_process_group, and the workers of its process group stay as "
        "they are; start the run again with another number"
    )
