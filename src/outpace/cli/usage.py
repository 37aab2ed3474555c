"""Wrong options and arguments of a command, in words."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any


def in_words(error: Any, given: Sequence[str], behind: Sequence[str]) -> str:
    """Return what to say of a usage error of typer.

    Args:
        given: arguments of the command, without those after --.
        behind: those after --.
    """
    message = error.format_message()
    if error.ctx is None:
        return f"error: {message}"
    command, path = error.ctx.command, error.ctx.command_path
    name = getattr(error, "option_name", None)
    if name is None or not hasattr(error, "possibilities"):
        return f"error: {path}: {message}\n{path} --help lists its options"
    text = f"error: {path} has no option {name}"
    if error.possibilities:
        return (
            f"{text}; did you mean {' or '.join(sorted(error.possibilities))}? Options of a "
            "script come after --"
        )
    if any(argument.endswith(".py") for argument in given):
        own, of_script = _divided(command, given)
        corrected = [*path.split(), *own, "--", *of_script, *behind]
        return f"{text}\noptions of the script come after --: {shlex.join(corrected)}"
    return f"{text}\n{path} --help lists its options"


def _divided(command: Any, given: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the arguments of the command, and those that only its script can know."""
    takes_value = {
        option: not parameter.is_flag
        for parameter in command.params
        if parameter.param_type_name == "option"
        for option in (*parameter.opts, *parameter.secondary_opts)
    }
    own: list[str] = []
    of_script: list[str] = []
    place, has_value = own, False  # the next argument belongs there as a value
    for argument in given:
        if argument.startswith("-") and argument != "-":
            name, equals, _ = argument.partition("=")
            place = own if name in takes_value else of_script
            place.append(argument)
            has_value = not equals and takes_value.get(name, True)
        elif has_value and (place is own or "=" not in argument):
            place.append(argument)
            has_value = place is of_script  # an unknown option may have several values
        else:
            own.append(argument)
            has_value = False
    return own, of_script
