"""Traces do not change without intention."""

from __future__ import annotations

import json

from tests.digests.running import ERROR, digests_of, trace_digest
from tests.digests.storing import STORED, stored_configurations

WHAT_TO_DO = """
See what changed, parameters included: python -m tests.digests --against COMMIT [PATTERN ...]
If it is meant: python -m tests.digests --store, and give the reason in the commit's message.
"""


def test_traces_are_those_that_are_stored():
    stored = json.loads(STORED.read_text())
    columns, wrong = stored["columns"], []
    expected, configurations = stored["traces"], stored_configurations()
    wrong += [f"{name}: is not stored" for name in configurations.keys() - expected.keys()]
    wrong += [f"{name}: is stored, and gone" for name in expected.keys() - configurations.keys()]
    for name in sorted(configurations.keys() & expected.keys()):
        found = digests_of(configurations[name])
        missing = [column for column in columns if f"trace.{column}" not in found]
        if ERROR in found:
            wrong.append(f"{name}: {found[ERROR]}")
        elif missing:
            wrong.append(f"{name}: the trace has no column {', '.join(missing)} any more")
        elif trace_digest(found, columns) != expected[name]:
            wrong.append(f"{name}: another trace")
    assert not wrong, "\n".join([f"{len(wrong)} traces:", *wrong, WHAT_TO_DO])
