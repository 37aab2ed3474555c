"""What the coordinator does differently in runs with servers and in runs without."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from outpace.blocks.block import Block
from outpace.real.coordinator.snapshots import Snapshots
from outpace.real.net.messages import Snapshot, WireMessage


class Architecture(Protocol):
    """`WithServers` or `WithoutServers`."""

    store: str  # host and port through which workers find each other; empty with servers

    @property
    def snapshots(self) -> Snapshots: ...

    def start(self) -> None:
        """The time of the run begins."""

    def end_early(self) -> None:
        """The walkers of the coordinator's kernel were ended."""

    def close(self) -> None:
        """The run has ended."""

    def take(self, name: str, message: WireMessage, block: Block | None) -> bool:
        """Handle a message about the training; False if it is about the run as a whole."""

    def source(self, shard: int) -> tuple[str, int]:
        """Return which process sends snapshots as `shard`, and the slice that it owns."""

    def add_snapshot(self, message: Snapshot, block: Block) -> None:
        """Use a snapshot that has arrived."""

    def awaits_parameters(self, name: str) -> None:
        """This worker wants the final parameters."""

    def hand_out(self) -> None:
        """Send the final parameters to the workers that want them, if they are known."""

    def can_spare(self, names: Collection[str]) -> bool:
        """True if the run can go on without these processes, too."""

    def lose(self, name: str) -> None:
        """Go on without this process."""
