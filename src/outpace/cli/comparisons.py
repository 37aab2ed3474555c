"""outpace compare: the variants of an experiment on the same seeds and data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from outpace.cli.base import app, echo, folder_for, print_comparison, print_table
from outpace.cli.options import (
    Address,
    Cluster,
    Json,
    On,
    Out,
    Overrides,
    Quiet,
    Resume,
    Seed,
    Servers,
    TargetAccuracy,
    TargetLoss,
    Workers,
    require_out,
    where,
    with_options,
)
from outpace.cli.output import Output
from outpace.cli.processes import fork_server_of_trials
from outpace.cli.sources import ConfigOrScript, source_for
from outpace.errors import ConfigError


@app.command()
def compare(
    context: typer.Context,
    config: ConfigOrScript,
    overrides: Overrides = None,
    workers: Workers = None,
    servers: Servers = None,
    seed: Seed = None,
    cluster: Cluster = None,
    variants_of: Annotated[
        Path | None,
        typer.Option("--variants", help="A YAML file; only its list `variants` is read."),
    ] = None,
    out: Out = None,
    seeds: Annotated[
        int | None,
        typer.Option("--seeds", help="Runs of each variant, with different seeds. Default: 1."),
    ] = None,
    target_accuracy: TargetAccuracy = None,
    target_loss: TargetLoss = None,
    resume: Resume = False,
    on: On = None,
    address: Address = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Run the variants of an experiment on the same seeds and data, and compare them.

    A script (.py) needs --variants; its own arguments come after --, as in
    outpace compare train.py --workers 16 --variants strategies.yaml -- --epochs 2
    """
    from outpace.experiment.comparison import compare as compare_all
    from outpace.experiment.comparison import seeds_from, variants_from
    from outpace.experiment.sources import with_target
    from outpace.support.yaml_files import read_yaml

    given = with_options(overrides, workers, servers, seed)
    source = source_for("compare", config, context.obj, given, cluster)
    data, base = with_target(source.data, target_accuracy, target_loss), source.folder
    if variants_of is not None:
        data, base = (
            {**data, "variants": read_yaml(variants_of).get("variants")},
            variants_of.parent,
        )
    elif config.suffix == ".py":
        raise ConfigError(
            f"{config}: the variants to compare are missing: outpace compare {config} --variants "
            "FILE, a YAML file with a list `variants`"
        )
    if seeds is not None:
        data = {**data, "seeds": seeds}
    require_out(resume, out, "comparison")
    count = seeds_from(data, str(config))
    variants = variants_from(data, str(variants_of or config), base or Path.cwd())
    output, away = Output(quiet, as_json), where(on, address)
    with folder_for(out, config) as folder:
        experiments = [each.experiment for each in variants]
        with (
            output.continuable(folder),
            output.with_bars(lambda: fork_server_of_trials(experiments, away)) as bar,
        ):
            rows = compare_all(
                variants,
                folder,
                seeds=count,
                resume=resume,
                on=away,
                progress=bar("runs"),
                say=output.log,
            )
        if count == 1:
            names, summaries = [row.variant.name for row in rows], [row.summary for row in rows]
            output.result(rows.variants, lambda: print_table(names, summaries))
        else:
            laws = [each.compute for each in experiments]
            drawn = any(getattr(law, key, None) for law in laws for key in ("errors", "block"))
            output.result(rows.variants, lambda: print_comparison(rows.results, of_runs=drawn))
        for row in rows:
            if row.error:
                name = row.variant.name + (f", seed {row.seed}," if count > 1 else "")
                echo(f"{name} failed: {row.error}", err=True)
        output.where(folder)
    if any(row.error for row in rows):
        raise typer.Exit(1)
