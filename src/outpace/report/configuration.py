"""Shows the configurations of the runs, and the keys in which they differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from outpace.report.columns import NOTHING
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


def differing(configs: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Return the dotted keys in which the configurations differ, each with its values."""
    flat = [_flat(config) for config in configs]
    keys = dict.fromkeys(key for entry in flat for key in entry)
    rows = {key: [entry.get(key, _ABSENT) for entry in flat] for key in keys}
    return {key: row for key, row in rows.items() if any(value != row[0] for value in row)}


def _flat(config: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in config.items():
        where = f"{path}{key}"
        if isinstance(value, Mapping) and value:
            found |= _flat(value, f"{where}.")
        else:
            found[where] = value
    return found


def _differences(runs: Sequence[Run]) -> str:
    rows = differing([run.config for run in runs])
    if not rows:
        return "<p>The configurations are the same.</p>"
    head = "".join(f'<th scope="col">{escaped(run.name)}</th>' for run in runs)
    body = "".join(
        f'<tr><th scope="row"><code>{escaped(key)}</code></th>'
        + "".join(f"<td>{escaped(_text(value))}</td>" for value in values)
        + "</tr>"
        for key, values in rows.items()
    )
    return (
        '<div class="scroll" tabindex="0" role="region" aria-label="Differing keys">'
        f'<table id="differences"><thead><tr><th scope="col">Differs in</th>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _text(value: Any) -> str:
    if value is _ABSENT:
        return NOTHING
    return value if isinstance(value, str) else write_yaml(value).removesuffix("...\n").strip()
