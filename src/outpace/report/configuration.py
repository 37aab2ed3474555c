"""Shows the configurations of the runs, and the keys in which they differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from outpace.report.columns import NOTHING
from outpace.report.frame import table
from outpace.report.read.runs import Run
from outpace.report.words import escaped
from outpace.support.yaml_files import write_yaml

_ABSENT: Final = object()


def configuration(runs: Sequence[Run]) -> str:
    """Return HTML: a table of the keys that differ, if there are several runs, and each YAML."""
    texts = "".join(
        f"<details><summary>{escaped(run.name)}</summary>"
        f"<pre><code>{escaped(run.config_text)}</code></pre></details>"
        for run in runs
    )
    return (_differences(runs) if len(runs) > 1 else "") + texts


def _differences(runs: Sequence[Run]) -> str:
    flat = [_flat(run.config) for run in runs]
    rows = []
    for key in dict.fromkeys(key for entry in flat for key in entry):
        values = [entry.get(key, _ABSENT) for entry in flat]
        if any(value != values[0] for value in values):
            rows.append([f"<code>{escaped(key)}</code>", *(escaped(_text(v)) for v in values)])
    if not rows:
        return "<p>The configurations are the same.</p>"
    return table("differences", ["Differs in", *(escaped(run.name) for run in runs)], rows)


def _flat(config: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """Return the values by dotted key."""
    found: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping) and value:
            found |= _flat(value, f"{path}{key}.")
        else:
            found[f"{path}{key}"] = value
    return found


def _text(value: Any) -> str:
    if value is _ABSENT:
        return NOTHING
    return value if isinstance(value, str) else write_yaml(value).removesuffix("...\n").strip()
