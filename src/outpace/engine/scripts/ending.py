"""How a script ends because the run is over, or is ended early."""

from __future__ import annotations


class RunOver(SystemExit):
    """Exits a script that still trains when the run has ended."""


class EndedEarly(RunOver):
    """Exits a script because the run was ended early, by Ctrl-C or a signal."""

    def __init__(self) -> None:
        super().__init__("outpace: the run was ended early")
