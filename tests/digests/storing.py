"""The stored digests of traces that are the same on every processor."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Final

from tests.digests.configurations import Configuration, configurations
from tests.digests.running import ERROR, digests_of, trace_digest

STORED: Final = Path(__file__).with_name("traces.json")


def stored_configurations() -> dict[str, Configuration]:
    """Return the configurations whose traces do not depend on the processor."""
    return {name: each for name, each in configurations().items() if each.everywhere}


def store() -> int:
    """Replace the stored digests of the traces; return 1 if a configuration cannot be run."""
    made = {name: digests_of(each) for name, each in stored_configurations().items()}
    for name, digests in made.items():
        if ERROR in digests:
            sys.stdout.write(f"{name} cannot be run: {digests[ERROR]}\n")
            return 1
    first = next(iter(made.values()))
    columns = [part.removeprefix("trace.") for part in first if part.startswith("trace.")]
    traces = {name: trace_digest(made[name], columns) for name in sorted(made)}
    STORED.write_text(json.dumps({"columns": columns, "traces": traces}, indent=1) + "\n")
    sys.stdout.write(f"{len(traces)} digests are in {STORED}\n")
    return 0
