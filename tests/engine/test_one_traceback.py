"""What a command shows of the lines that its processes print."""

from __future__ import annotations

from itertools import chain, zip_longest

from outpace.engine.output import OneTraceback

TRACEBACK = [
    "Traceback (most recent call last):",
    '  File "train.py", line 3, in <module>',
    "    head = table[key]",
    "KeyError: 'head'",
]
CHAINED = [
    *TRACEBACK,
    "",
    "During handling of the above exception, another exception occurred:",
    "",
    TRACEBACK[0],
    '  File "train.py", line 5, in <module>',
    "ValueError: no head",
]


def shown(*of_workers: list[str]) -> list[str]:
    """Return what is shown if the workers' lines come by turns."""
    found: list[str] = []
    output = OneTraceback(lambda name, line, _: found.append(f"{name} | {line}"))
    turns = zip_longest(
        *([(f"worker-{k}", line) for line in lines] for k, lines in enumerate(of_workers))
    )
    for name, line in filter(None, chain.from_iterable(turns)):
        output(name, line, True)
    output.close()
    return found


def test_a_traceback_of_several_workers_is_shown_once():
    for lines in (TRACEBACK, CHAINED):
        first = [f"worker-0 | {line}" for line in ["before", *lines, "after"]]
        found = shown(["before", *lines, "after"], ["before", *lines, "after"])
        assert [line for line in found if line.startswith("worker-0")] == first
        assert [line for line in found if line.startswith("worker-1")] == [
            "worker-1 | before",
            "worker-1 | the same error as worker-0",
            "worker-1 | after",
        ]


def test_other_tracebacks_and_incomplete_ones_are_shown_whole():
    other = [*TRACEBACK[:-1], "KeyError: 'tail'"]
    found = shown(TRACEBACK, other, TRACEBACK[:2])
    for name, lines in (("worker-0", TRACEBACK), ("worker-1", other), ("worker-2", TRACEBACK[:2])):
        assert [line for line in found if line.startswith(name)] == [f"{name} | {x}" for x in lines]
