"""Records the functions of Outpace that a worker's steps and a server's requests call."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Final

from outpace.sync import Decision, Policy, Pull, Reason, ShardView
from outpace.sync.policy import Apply

REQUESTS: Final = 60  # after this the server writes its calls


class CalledFunctions:
    """Counts the calls of each function between `begin` and `end`.

    Attributes:
        of_each: for each span, the number of calls of each function.
    """

    def __init__(self) -> None:
        self.of_each: list[dict[str, int]] = []

    def begin(self) -> None:
        """Begin a span."""
        calls: dict[str, int] = {}
        self.of_each.append(calls)

        def note(frame: FrameType, event: str, _: Any) -> None:
            code = frame.f_code
            if event == "call" and "/outpace/" in code.co_filename:
                file = code.co_filename.rpartition("/outpace/")[2]
                name = f"{file}:{code.co_firstlineno} {code.co_qualname}"
                calls[name] = calls.get(name, 0) + 1

        sys.setprofile(note)

    def end(self) -> None:
        """End the span."""
        sys.setprofile(None)


@dataclass(frozen=True)
class CountedAsp(Policy):
    """Answers at once, and writes the functions that are called between two answers."""

    folder: str
    apply: Apply = Apply.ON_ARRIVAL
    called: CalledFunctions = field(default_factory=CalledFunctions)

    def may_answer(self, pull: Pull, view: ShardView) -> Decision:
        self.called.end()
        if pull.iteration == REQUESTS:
            text = json.dumps(self.called.of_each)
            (Path(self.folder) / "server.json").write_text(text)
        elif pull.iteration < REQUESTS:
            self.called.begin()
        return Decision(None, Reason.WITHIN_BOUND, 0)
