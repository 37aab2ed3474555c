"""A Ray cluster on this machine, with several nodes."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

STORE_BYTES = 80 << 20


@contextmanager
def nodes(*names: str, cpus: float) -> Iterator[Any]:
    """Start a cluster with nodes of these names on the loopback; it ends with the block.

    Its attribute `temporary` is the folder for temporary files of its processes.
    """
    folder = tempfile.mkdtemp(prefix="ray-")
    variables = {
        "RAY_TMPDIR": folder,
        "RAY_USAGE_STATS_ENABLED": "0",
        # Ray gives its workers a niceness of 15: they would miss their limits during other tests.
        "RAY_worker_niceness": "0",
        # A lost node is known after 2 s instead of 30.
        "RAY_health_check_initial_delay_ms": "0",
        "RAY_health_check_period_ms": "500",
        "RAY_health_check_timeout_ms": "15000",
        "RAY_health_check_failure_threshold": "3",
    }
    before = {key: os.environ.get(key) for key in variables}
    os.environ |= variables
    os.mkdir(os.path.join(folder, "ray"))
    from ray.cluster_utils import Cluster

    cluster = Cluster(shutdown_at_exit=False)
    cluster.folder, cluster.temporary = folder, Path(folder) / "tmp"
    cluster.temporary.mkdir()
    try:
        for name in names:
            add(cluster, name, cpus)
        yield cluster
    finally:
        cluster.shutdown()
        for key, value in before.items():
            os.environ.pop(key) if value is None else os.environ.__setitem__(key, value)
        shutil.rmtree(folder)


def add(cluster: Any, name: str, cpus: float) -> Any:
    """Add a node to the cluster, and return it."""
    return cluster.add_node(
        node_name=name,
        num_cpus=cpus,
        node_ip_address="127.0.0.1",
        object_store_memory=STORE_BYTES,
        include_dashboard=False,
        env_vars={"TMPDIR": str(cluster.temporary)},
    )


def processes_of(folder: str) -> dict[int, str]:
    """Return ids and names of the processes that were started by this cluster's nodes."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if f"RAY_TMPDIR={folder}".encode() in (entry / "environ").read_bytes():
                    found[int(entry.name)] = (entry / "comm").read_text().strip()
    return found


def until(condition: Callable[[], Any], limit_s: float = 120.0) -> Any:
    """Return the first true value of the condition. Fails after the limit."""
    deadline = time.monotonic() + limit_s
    while not (value := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return value
