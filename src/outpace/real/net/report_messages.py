"""Wire messages in which processes report to the coordinator what they record, and failures."""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypeAlias

import msgspec

from outpace.real.net.messages import Name, Text, WirePart
from outpace.record.logged import LONGEST_NAME, MOST_NAMES
from outpace.record.totals import Totals
from outpace.sync.messages import Count, WireBlock, WireMessage

MOST_ROWS: Final = 1 << 16  # of a trace, in one message
MOST_FILES: Final = 1000  # that a script has written
MOST_POINTS: Final = 256  # that a script has logged, in one message
ScalarsByName: TypeAlias = Annotated[
    dict[Annotated[str, msgspec.Meta(max_length=LONGEST_NAME)], float],
    msgspec.Meta(max_length=MOST_NAMES),
]
MOST_TIMES: Final = 1 << 13  # rows of `record.timing`, in one message


class RowsReport(WireMessage, tag="rows"):
    """Rows, as integers, and the sums over all rows of the trace of this process so far.

    table: to which they belong, the trace or `record.timing`.
    """

    totals: Totals
    block: WireBlock | None = None
    table: Literal["trace", "timing"] = "trace"


class LoggedPoint(WirePart):
    """Numbers that a script logs at one time. time: ns since the start of the run."""

    time: Count
    iteration: Count
    values: ScalarsByName


class ScriptLog(WireMessage, tag="log"):
    """A worker to the coordinator: what its script has logged since the last ScriptLog.

    files: at the end of the script, those that it has written.
    """

    points: Annotated[list[LoggedPoint], msgspec.Meta(max_length=MOST_POINTS)]
    files: Annotated[list[Text], msgspec.Meta(max_length=MOST_FILES)] = msgspec.field(
        default_factory=list
    )


class ProcessFailed(WireMessage, tag="failed"):
    """A process cannot continue.

    kind: class name of the error. lost: name of the server that it lost, if that was the error.
    """

    kind: Name
    text: Text
    lost: Name = ""


class Notice(WireMessage, tag="notice"):
    """A line for the log; the run continues.

    warns: it is a warning that other workers may send, too; it is shown once, without a name.
    """

    text: Text
    warns: bool = False
