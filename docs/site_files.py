"""Which files are on the documentation's site, and a check of what it loads: hooks of MkDocs.

The site has the layout of the repository, so that one link works on both.
"""

from __future__ import annotations

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
FILES = (
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "changes/README.md",
    "CITATION.cff",
    "benchmarks/README.md",
    "benchmarks/papers/**/*.yaml",
    "benchmarks/papers/**/*.py",
    "benchmarks/*/RESULTS.md",
    "benchmarks/fidelity/results/*.md",
    "benchmarks/strategies/**/*.yaml",
    "docs/**/*.md",
    "docs/images/*.png",
    "docs/site.css",
    "examples/*",
)
# What a browser fetches by itself; links that a reader follows may lead anywhere.
_LOADED = re.compile(
    r"<(?:script|img|iframe|link)\b[^>]*\b(?:src|href)=[\"']?((?:https?:)?//[^\s\"'>]+)"
)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Put the files of the repository in place of those below docs/."""
    for file in list(files):
        if file.src_dir == config.docs_dir:
            files.remove(file)
    for pattern in FILES:
        for path in sorted(ROOT.glob(pattern)):
            if path.is_file():
                name = path.relative_to(ROOT).as_posix()
                files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_post_page(output: str, page: object, config: MkDocsConfig) -> str:
    """Refuse a page that loads something from another host: the site works offline."""
    if found := _LOADED.search(output):
        raise PluginError(f"{page} loads {found[1]}; put the file into the site instead")
    return output
