"""Real runs with checkpoints, and actions after a checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from outpace.engine.control import Control


def numbers(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "checkpoints").iterdir())


def once_saved(
    folder: Path, action: Callable[[], None], number: int = 2
) -> Callable[[Control], None]:
    """Return a control function that acts once, as soon as this or a later checkpoint exists.

    The first checkpoint is of the start of the run.
    """

    def is_saved() -> bool:
        whole = [int(name) for name in numbers(folder) if name.isdigit()]
        return max(whole, default=0) >= number

    return once(is_saved, action)


def once(condition: Callable[[], bool], action: Callable[[], None]) -> Callable[[Control], None]:
    """Return a control function that acts once, as soon as this is true."""
    did = []

    def control(control: Control) -> None:
        def look() -> None:
            if condition():
                did.append(action())
            elif not did:
                control.at(control._now() / 1e9 + 0.02, look)

        if not did:
            control.at(0.0, look)

    return control


def give_up() -> None:
    raise RuntimeError("that is enough")
