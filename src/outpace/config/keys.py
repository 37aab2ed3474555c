"""Names of keys of a configuration that belong together, and a default with a reason."""

from __future__ import annotations

from typing import Final

SERVICE_TIMES: Final = ("push_time", "pull_time", "update_time", "judge_time")
MACHINES: Final = ("servers", "workers")
FORWARD_SHARE: Final = 1 / 3  # one matrix product forward, two backward
MOST_NODES: Final = 20_000  # workers, and servers: 15 kB of memory each, 1 ms per iteration
