"""The machines of a run's processes, by what the processes tell when they join."""

from __future__ import annotations

from collections.abc import Mapping

from outpace.real.net.messages import JoinRun


def machines_of(joined: Mapping[str, JoinRun]) -> dict[str, str]:
    """Return the name of the machine of each process, by the name of the process.

    This is its host name. Of several machines with one host name, all but the first get a number:
    "host (2)".
    """
    names: dict[str, str] = {}  # by id
    found = {}
    for process, join in joined.items():
        host = "".join(each if each.isprintable() else "?" for each in join.host) or process
        machine = join.machine or f"host {host}"
        if machine not in names:
            name, number = host, 1
            while name in names.values():
                number += 1
                name = f"{host} ({number})"
            names[machine] = name
        found[process] = names[machine]
    return found
