"""Fuzzing that is guided by coverage: inputs that reach new code are kept and changed further.

`python -m tests.fuzz.guided CORPUS -runs=1000000` with options of libFuzzer. An input decides what
processes say, in what order; see `draws`. A folder CORPUS keeps the inputs that reached new code.
"""

import sys

import atheris

MODULES = ["outpace.sync", "outpace.real.net", "outpace.real.coordinator"]
_LONGEST = 1024  # bytes of an input: some 50 messages

with atheris.instrument_imports(include=MODULES):
    from tests.fuzz.inputs import try_input


def main() -> None:
    """Try inputs until the number in the options, or until one fails: then exit with its trace."""
    atheris.Setup([sys.argv[0], f"-max_len={_LONGEST}", "-len_control=0", *sys.argv[1:]], try_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
