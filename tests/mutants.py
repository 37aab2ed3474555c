"""Change the source in small ways, one at a time, and see whether a test fails.

    python -m tests.mutants [--count 60] [--seed 1] [--only NAME] [--json FILE]

Not a part of `make test`: each change (mutant) runs the tests of its part until one fails. The
changes are drawn evenly from the parts in which errors would give wrong results without an
exception. A mutant is killed if a test fails or does not end. Exit code 1 if fewer than 90 % are
killed; the others are printed with their line, before and after. The tests must pass without a
change, which is tried first. Nothing is changed in this folder: the mutants are made in a copy.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parent.parent
LONGER: Final = 4.0  # times of the unchanged tests that a mutant's tests may take
GOAL: Final = 0.9


class Part(NamedTuple):
    """Sources, as patterns below src/outpace, and the tests that show their promises."""

    sources: tuple[str, ...]
    tests: tuple[str, ...]


PARTS: Final = {
    "shard": Part(
        ("sync/shard.py", "sync/bookkeeping/*.py"),
        (
            "tests/sync",
            "tests/contracts/test_policies.py",
            "tests/closed_form",
            "tests/simulation/test_small_run.py",
        ),
    ),
    "policies": Part(
        ("sync/policies/*.py",),
        ("tests/sync", "tests/contracts/test_policies.py", "tests/closed_form", "tests/contracts"),
    ),
    "keeper": Part(
        ("sync/membership/*.py",), ("tests/sync", "tests/simulation", "tests/real/coordinator")
    ),
    "saver": Part(
        ("sync/checkpoint/*.py", "record/checkpoints/*.py"),
        ("tests/sync", "tests/record", "tests/real/coordinator", "tests/simulation"),
    ),
    "wire": Part(
        ("real/net/wire.py", "real/net/block_frames.py", "real/net/*messages.py"),
        (
            "tests/real/net",
            "tests/fuzz",
            "tests/contracts/test_transports.py",
            "tests/contracts/test_bf16_with_servers.py",
        ),
    ),
    "advise": Part(("experiment/advising/*.py",), ("tests/experiment", "tests/cli")),
}

COMPARED: Final = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.In: "not in",
    ast.NotIn: "in",
    ast.Is: "is not",
    ast.IsNot: "is",
}
COMPUTED: Final = {ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*"}


class Mutant(NamedTuple):
    """One change: the text from start to end, as offsets in bytes, becomes `after`."""

    part: str
    path: str
    line: int
    start: int
    end: int
    before: str
    after: str


def mutants_of(part: str, path: Path) -> Iterator[Mutant]:
    """Yield every change of this file."""
    source = path.read_bytes()
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def made(node: ast.expr | ast.stmt, after: str) -> Mutant:
        start = starts[node.lineno - 1] + node.col_offset
        end = starts[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)
        before = source[start:end].decode()
        name = str(path.relative_to(ROOT))
        return Mutant(part, name, node.lineno, start, end, before, after)

    tree = ast.parse(source)
    # Types, and the options of classes, such as frozen=True, do not change results.
    without_effect = {
        id(each)
        for node in ast.walk(tree)
        for name in ("annotation", "returns", "decorator_list", "keywords")
        if name != "keywords" or isinstance(node, ast.ClassDef)
        for found in [getattr(node, name, None) or []]
        for root in (found if isinstance(found, list) else [found])
        for each in ast.walk(root)
    }
    for node in ast.walk(tree):
        if id(node) in without_effect:
            continue
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            left, right = ast.unparse(node.left), ast.unparse(node.comparators[0])
            yield made(node, f"(({left}) {COMPARED[type(node.ops[0])]} ({right}))")
        elif isinstance(node, ast.BinOp) and type(node.op) in COMPUTED:
            left, right = ast.unparse(node.left), ast.unparse(node.right)
            yield made(node, f"(({left}) {COMPUTED[type(node.op)]} ({right}))")
        elif isinstance(node, ast.BoolOp):
            word = " or " if isinstance(node.op, ast.And) else " and "
            yield made(node, f"({word.join(f'({ast.unparse(each)})' for each in node.values)})")
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            yield made(node, f"bool({ast.unparse(node.operand)})")
        elif isinstance(node, ast.Constant) and type(node.value) is int:
            yield made(node, str(node.value + 1))
        elif isinstance(node, ast.Constant) and type(node.value) is bool:
            yield made(node, str(not node.value))
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            yield made(node, "pass")  # a call for its effect
        elif isinstance(node, ast.AugAssign):
            yield made(node, "pass")


def drawn(count: int, seed: int, only: str | None) -> list[Mutant]:
    """Return this many changes, equally many of each part."""
    source = Random(seed)
    chosen: list[Mutant] = []
    parts = [only] if only else list(PARTS)
    for number, name in enumerate(parts):
        files = [p for pattern in PARTS[name].sources for p in (ROOT / "src/outpace").glob(pattern)]
        found = [mutant for path in sorted(set(files)) for mutant in mutants_of(name, path)]
        share = count // len(parts) + (number < count % len(parts))
        chosen += source.sample(found, min(share, len(found)))
    return chosen


def fails(copy: Path, tests: tuple[str, ...], limit_s: float | None) -> bool:
    """True if a test fails, or the tests do not end in time."""
    environment = {**os.environ, "PYTHONPATH": f"{copy / 'src'}:{copy}"}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
    try:
        done = subprocess.run(
            command, cwd=copy, env=environment, check=False, capture_output=True, timeout=limit_s
        )
    except subprocess.TimeoutExpired:
        return True
    if done.returncode not in (0, 1, 2):  # 2: a module cannot be imported
        raise SystemExit(f"pytest ended with {done.returncode}: {done.stdout.decode()[-500:]}")
    return done.returncode != 0


def main() -> int:
    """Return 1 if fewer mutants are killed than the goal."""
    parser = argparse.ArgumentParser(prog="tests.mutants", description=__doc__)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=sorted(PARTS))
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what became of each")
    options = parser.parse_args()
    outcomes: list[dict[str, object]] = []
    limits_s: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy"
        hidden = shutil.ignore_patterns(".git", ".venv", "runs", "__pycache__", ".*_cache")
        shutil.copytree(ROOT, copy, symlinks=True, ignore=hidden)
        for mutant in drawn(options.count, options.seed, options.only):
            file = copy / mutant.path
            source = file.read_bytes()
            tests = PARTS[mutant.part].tests
            if mutant.part not in limits_s:
                begun = time.monotonic()
                if fails(copy, tests, None):
                    raise SystemExit(f"{mutant.part}: the tests fail without a change")
                limits_s[mutant.part] = 60 + LONGER * (time.monotonic() - begun)
            file.write_bytes(source[: mutant.start] + mutant.after.encode() + source[mutant.end :])
            killed = fails(copy, tests, limits_s[mutant.part])
            file.write_bytes(source)
            outcomes.append({**mutant._asdict(), "killed": killed})
            word = "killed  " if killed else "SURVIVED"
            change = f"{mutant.before} -> {mutant.after}"
            print(f"{word} {mutant.path}:{mutant.line}  {change}", flush=True)  # noqa: T201
            if options.json:
                options.json.write_text(json.dumps(outcomes, indent=1))
    share = sum(bool(each["killed"]) for each in outcomes) / len(outcomes)
    print(f"{share:.0%} of {len(outcomes)} killed; goal {GOAL:.0%}")  # noqa: T201
    return int(share < GOAL)


if __name__ == "__main__":
    sys.exit(main())
