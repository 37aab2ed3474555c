"""Workers of a real run that other programs start, perhaps on other machines."""

from __future__ import annotations

import fcntl
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from outpace.errors import ConfigError
from outpace.real.net.addresses import is_loopback

_KEYS: Final = {"endpoint", "key", "session", "workers"}  # of a connect file, among others


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
        if self.connect.exists() and not self._is_left_over:
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
        if insecure and not is_loopback(self.host):
            raise ConfigError(
                f"--insecure is not possible with --host {self.host}, only on the loopback "
                "interface; leave it out, and the connections are encrypted"
            )

    def remove_left_over(self) -> bool:
        """Remove the connect file of a run that was killed; False if there is none.

        Workers that find it would wait for that run.
        """
        if not self._is_left_over:
            return False
        self.connect.unlink(missing_ok=True)
        return True

    @property
    def _is_left_over(self) -> bool:
        """True if a process has written the connect file that holds its lock no more."""
        try:
            with self.connect.open("r+b") as file:
                content = msgspec.json.decode(file.read())
                if not isinstance(content, dict) or not content.keys() >= _KEYS:
                    return False  # another program's
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
        except (OSError, msgspec.DecodeError):
            return False
