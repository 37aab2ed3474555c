"""What the copies of a template do in tests; imports little."""

from __future__ import annotations

import os
import sys
from multiprocessing.connection import Connection


def says_who_it_is(connection: Connection) -> None:
    """The target of a copy, which lasts as long as its connection."""
    modules = [name for name in ("wave", "chunk") if name in sys.modules]
    connection.send((os.getpid(), os.getppid(), os.getcwd(), os.environ.get("OUR_OWN"), modules))
    connection.recv()


def fails(_: Connection) -> None:
    raise ValueError("a copy that fails")
