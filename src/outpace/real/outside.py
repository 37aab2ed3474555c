"""Workers of a real run that other programs start, perhaps on other machines."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from outpace.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Outside:
    """Workers that Outpace does not start, perhaps on other machines.

    host: an address of this machine that the workers can reach. connect: the file written for the
    workers, with their keys.
    """

    host: str
    connect: Path

    def require_reachable(self, *, insecure: bool) -> None:
        """Raise ConfigError if the address or the connect file cannot be used."""
        if self.connect.exists():
            raise ConfigError(
                f"--connect {self.connect}: the file exists, and another run may be using it; "
                "remove it if no run is, or name another file"
            )
        if not os.access(self.connect.parent, os.W_OK | os.X_OK):
            is_there = self.connect.parent.is_dir()
            problem = "cannot be written" if is_there else "does not exist"
            raise ConfigError(
                f"--connect {self.connect}: the folder {self.connect.parent} {problem}; "
                "make it, or name a file in another folder"
            )
        if self.host in ("0.0.0.0", "*", "::"):
            raise ConfigError(
                f"--host {self.host}: workers cannot connect to this address; "
                "give the address of this machine that they can reach"
            )
        if insecure and not self.host.startswith("127."):
            raise ConfigError(
                f"--insecure is not possible with --host {self.host}, only on the loopback "
                "interface; leave it out, and the connections are encrypted"
            )
