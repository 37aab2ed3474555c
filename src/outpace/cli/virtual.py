"""outpace simulate | compare: runs in virtual time."""

from __future__ import annotations

import typer

from outpace.cli.base import (
    Config,
    Out,
    Overrides,
    app,
    errors_in_words,
    folder_for,
    print_table,
    progress_bars,
    say_where,
)
from outpace.errors import ConfigError


@app.command()
@errors_in_words
def simulate(config: Config, overrides: Overrides = None, out: Out = None) -> None:
    """Run one experiment in virtual time, with real gradients."""
    from outpace.config.reading import experiment_from
    from outpace.experiment.running import simulate as run
    from outpace.support.yaml_files import read_yaml, with_overrides

    if config.suffix == ".py":
        raise ConfigError(
            f"{config}: a script cannot be simulated; run it for real: outpace run {config}"
        )
    data = with_overrides(read_yaml(config), overrides or [])
    if "variants" in data:
        raise ConfigError(f"{config} has variants: use outpace compare {config}")
    experiment = experiment_from(data, str(config), config.parent)
    with folder_for(out, config) as folder:
        with progress_bars() as bar:
            result = run(experiment, folder, progress=bar(folder.name))
        print_table([folder.name], [result.summary])
        say_where(folder)


@app.command()
@errors_in_words
def compare(config: Config, overrides: Overrides = None, out: Out = None) -> None:
    """Run the variants of an experiment on the same seeds and data, and compare them."""
    from outpace.experiment.comparison import compare as run
    from outpace.experiment.comparison import variants_from
    from outpace.support.yaml_files import read_yaml, with_overrides

    data = with_overrides(read_yaml(config), overrides or [])
    variants = variants_from(data, str(config), config.parent)
    with folder_for(out, config) as folder:
        with progress_bars() as bar:
            rows = run(variants, folder, progress=lambda variant: bar(variant.name))
        print_table([row.variant.name for row in rows], [row.summary for row in rows])
        for row in rows:
            if row.error:
                typer.echo(f"{row.variant.name} failed: {row.error}", err=True)
        say_where(folder)
    if any(row.error for row in rows):
        raise typer.Exit(1)
