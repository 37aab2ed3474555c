"""A Ray cluster of one node on the loopback interface, for the time of a measurement."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.failures.running import processor_s

from outpace.real.net.addresses import LOOPBACK

_STORE_BYTES = 80 << 20
_FOLDER = "RAY_TMPDIR"  # in the environment of each process of a cluster


@dataclass(frozen=True)
class OneNode:
    """The cluster. folder: of its files."""

    address: str
    folder: str

    def processor_s(self) -> float:
        """Return the processor time so far of Ray's processes, and of those that they started."""
        spent_s = 0.0
        mark = f"{_FOLDER}={self.folder}".encode()
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    if mark in (entry / "environ").read_bytes().split(b"\0"):
                        spent_s += processor_s(int(entry.name))
        return spent_s


@contextlib.contextmanager
def one_node(cpus: int) -> Iterator[OneNode]:
    """Start a cluster for this block."""
    from ray.cluster_utils import Cluster

    folder = tempfile.mkdtemp(prefix="ray-")
    variables = {_FOLDER: folder, "RAY_USAGE_STATS_ENABLED": "0"}
    before = {key: os.environ.get(key) for key in variables}
    os.environ |= variables
    os.mkdir(os.path.join(folder, "ray"))
    cluster = Cluster(shutdown_at_exit=False)
    try:
        try:
            cluster.add_node(
                num_cpus=cpus,
                node_ip_address=LOOPBACK,
                object_store_memory=_STORE_BYTES,
                include_dashboard=False,
            )
        finally:
            for key, value in before.items():
                os.environ.pop(key) if value is None else os.environ.__setitem__(key, value)
        yield OneNode(cluster.address, folder)
    finally:
        cluster.shutdown()
        shutil.rmtree(folder)
