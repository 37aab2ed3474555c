"""Download the wheels of what Outpace needs and a machine with a GPU lacks.

    python -m benchmarks.gpu.wheels --there packages.txt

Such a machine often has a Python with torch and no access to a registry. `packages.txt` has the
names of its packages, one a line, as `python3 -m pip list --format freeze` prints them there. The
wheels are of the versions that are installed here, for its Python. On the machine:

    python3 -m pip install --no-index --no-deps --target /tmp/site .whl/*.whl
    PYTHONPATH=/tmp/site:src python3 -m benchmarks.gpu --quick --json gpu.json
    PYTHONPATH=/tmp/site:src python3 -m pytest tests/gpu

Packages that are there are left out, whatever their versions, and so is all that only they need.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Collection, Iterable
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement

# Wheels of these platforms run on Linux with glibc 2.28 or later. pip takes each as it is written.
PLATFORMS: Final = [
    f"{name}_x86_64"
    for name in ("manylinux_2_28", "manylinux_2_27", "manylinux_2_17", "manylinux2014")
]
MOST_MIB: Final = 64


def main(arguments: list[str] | None = None) -> int:
    """Return 0, 1 if a download failed, or 2 if the wheels are too large."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--there", type=Path, help="names of packages; default: torch alone")
    parser.add_argument("--python", default="3.12", help="version there; default: 3.12")
    parser.add_argument("--to", type=Path, default=Path(".whl"), help="folder; default: .whl")
    parser.add_argument("--most-mib", type=float, default=MOST_MIB, help="default: 64")
    options = parser.parse_args(arguments)
    there = {"torch"}
    if options.there is not None:
        lines = options.there.read_text("utf-8").splitlines()
        there = {_name(re.split(r"[=<>@\s]", line.strip(), maxsplit=1)[0]) for line in lines}
    missing = wanted(["outpace", "pytest", "hypothesis"], there, options.python)
    print(f"{len(missing)} packages: {' '.join(missing)}")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--only-binary=:all:", "--implementation", "cp", "--dest", str(options.to)]
    command += ["--python-version", options.python]
    for platform in PLATFORMS:
        command += ["--platform", platform]
    if missing and subprocess.run([*command, *missing], check=False).returncode:
        return 1
    size_mib = sum(each.stat().st_size for each in options.to.glob("*.whl")) / 2**20
    print(f"{options.to}: {size_mib:.1f} MiB")
    if size_mib > options.most_mib:
        print(
            f"that is more than {options.most_mib:g} MiB: name what is there with --there",
            file=sys.stderr,
        )
        return 2
    return 0


def wanted(roots: Iterable[str], there: Collection[str], python: str) -> list[str]:
    """Return NAME==VERSION of the packages that these need and that are not there.

    Args:
        roots: names of packages that are installed here. Outpace itself is not wanted.
        there: normalised names.
        python: the version there, such as 3.12.
    """
    found: dict[str, str] = {}
    waiting = [_name(each) for each in roots]
    seen = {*waiting}
    while waiting:
        name = waiting.pop()
        if name in there:
            continue
        try:
            here = distribution(name)
        except PackageNotFoundError:  # of an extra, or of another platform
            continue
        if name != "outpace":
            found[name] = f"{name}=={here.version}"
        for line in here.requires or ():
            requirement = Requirement(line)
            where = {"python_version": python, "python_full_version": f"{python}.0", "extra": ""}
            if requirement.marker is None or requirement.marker.evaluate(where):
                needed = _name(requirement.name)
                if needed not in seen:
                    seen.add(needed)
                    waiting.append(needed)
    return [found[name] for name in sorted(found)]


def _name(name: str) -> str:
    """Return the normalised name of a package."""
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    sys.exit(main())
