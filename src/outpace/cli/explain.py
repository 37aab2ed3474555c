"""outpace explain: which worker or link slows a run, and what its repair would gain."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from outpace.cli.base import app, echo, say
from outpace.cli.options import Quiet
from outpace.errors import ConfigError


@app.command()
def explain(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run.")],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KEY=VALUE",
            help="Also say what the run would take with these keys, as in sync.kind=asp.",
        ),
    ] = None,
    gains: Annotated[bool, typer.Option(help="Simulate the run again, without each cause.")] = True,
    quiet: Quiet = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the content of explain.json, and nothing else.")
    ] = False,
) -> None:
    """Say which worker or link slows a run, and how many seconds that costs.

    It writes explain.json into RUN.
    RUN is real or simulated. The run is simulated again with its recorded run times to say what a
    repair would gain.
    """
    import json

    from outpace.experiment.explaining import explain as explain_run
    from outpace.record.checkpoints.gathering import gather
    from outpace.record.folder import EXPLANATION, write_json
    from outpace.report.explaining.words import gain_words, sentences
    from outpace.report.words import SPACE
    from outpace.support.yaml_files import with_overrides

    path = run / EXPLANATION
    say("note", gather(run))
    found = explain_run(run, with_overrides({}, overrides or []), gains=gains)
    data = found.to_plain()
    try:
        write_json(path, data)
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}") from error
    if as_json:
        echo(json.dumps(data, indent=2, allow_nan=False))
    if as_json or quiet:
        return
    for sentence in sentences(found):
        echo(sentence.replace(SPACE, " "))
    if found.gains:
        echo("")
        echo(f"The run took {found.time_s:.4g} s. As many gradients would take, by simulation:")
        for gain in found.gains:
            echo(f"  {gain_words(gain)}".replace(SPACE, " "))
    say("note", found.notes)
    echo(f"explanation: {path}")
