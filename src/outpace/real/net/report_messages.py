"""Wire messages in which processes report their records and failures to the coordinator."""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypeAlias

import msgspec

from outpace.real.net.messages import Name, Text, WirePart
from outpace.record.logged import LONGEST_NAME, MOST_NAMES
from outpace.record.totals import Totals
from outpace.sync.messages import Count, WireBlock, WireMessage

MOST_ROWS: Final = 1 << 16  # most rows of a trace in one message
MOST_FILES: Final = 1000  # most files that a script has written
MOST_POINTS: Final = 256  # most points that a script has logged, in one message
ScalarsByName: TypeAlias = Annotated[
    dict[Annotated[str, msgspec.Meta(max_length=LONGEST_NAME)], float],
    msgspec.Meta(max_length=MOST_NAMES),
]
MOST_TIMES: Final = 1 << 13  # most rows of `record.timing` in one message


class RowsReport(WireMessage, tag="rows"):
    """Rows as integers, and the sums over all rows of the trace of this process so far.

    table: the table of the rows, the trace or `record.timing`.
    """

    totals: Totals
    block: WireBlock | None = None
    table: Literal["trace", "timing"] = "trace"


class LoggedPoint(WirePart):
    """Numbers that a script logs together. time: ns since the start of the run."""

    time: Count
    iteration: Count
    values: ScalarsByName


class ScriptLog(WireMessage, tag="log"):
    """The values that a worker's script has logged since its last ScriptLog, for the coordinator.

    files: the files that the script has written; empty before the script ends.
    """

    points: Annotated[list[LoggedPoint], msgspec.Meta(max_length=MOST_POINTS)]
    files: Annotated[list[Text], msgspec.Meta(max_length=MOST_FILES)] = msgspec.field(
        default_factory=list
    )


class ProcessFailed(WireMessage, tag="failed"):
    """Tells that a process cannot continue.

    kind: class name of the error. lost: name of the server that it lost, if that was the error.
    """

    kind: Name
    text: Text
    lost: Name = ""


class Notice(WireMessage, tag="notice"):
    """A line for the log; the run continues.

    warns: True: other workers may send the same warning; it is shown once, without a name.
    """

    text: Text
    warns: bool = False
