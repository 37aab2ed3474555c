"""Says which processes of this computer stand still."""

from __future__ import annotations

from pathlib import Path


def is_stopped(process: int, name: str = "") -> bool:
    """True if a process is known to be stopped by a signal, such as that of Ctrl-Z. Linux only.

    name: as `ps` shows it. If the process has another one, this is False: it is on another machine.
    """
    try:
        stat = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    begin, _, rest = stat.rpartition(")")
    return rest.split()[0] in ("T", "t") and name in ("", begin.partition("(")[2])
