"""Make the pictures of the documentation from real runs: `make pictures`.

The runs of the documentation are repeated in a temporary folder, and headless Chromium takes
pictures of their reports, so no picture shows an older program than this one.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs" / "images"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")

# Hidden before the picture; the height of the page is written where --dump-dom shows it.
PREPARE = """<script>
const sections = __SECTIONS__;
for (const section of document.querySelectorAll("main section"))
  section.hidden = !sections.includes(section.id);
document.querySelector("header").hidden = !__HEADER__;
document.querySelector("footer").hidden = true;
setTimeout(() => {
  window.dispatchEvent(new Event("resize"));
  const main = document.querySelector("main");
  document.body.dataset.height = Math.ceil(main.getBoundingClientRect().bottom + 16);
}, 1500);
</script></body>"""


@dataclass(frozen=True)
class Picture:
    """A part of a report.

    Args:
        name: file in docs/images.
        report: path below the folder of runs.
        sections: ids of the sections to show.
        header: show the heading and the findings too.
        width: in pixels.
    """

    name: str
    report: str
    sections: tuple[str, ...]
    header: bool = False
    width: int = 1160


PICTURES = (
    Picture("report.png", "demo/report.html", ("summary", "progress"), header=True),
    Picture("timeline.png", "demo/BSP/seed-0/report.html", ("timeline",)),
    Picture("cut-offs.png", "pooled/report.html", ("timeline",)),
    Picture("your-script.png", "script/report.html", ("summary", "progress"), header=True),
    Picture("ssp-lazy.png", "ssp/lazy/report.html", ("timeline",), width=1080),
    Picture("ssp-soft.png", "ssp/soft/report.html", ("timeline",), width=1080),
)


def main() -> None:
    browser = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if browser is None:
        print(f"No pictures were made: none of {', '.join(BROWSERS)} is installed.")
        return
    with tempfile.TemporaryDirectory() as folder:
        runs = Path(folder)
        make_runs(runs)
        for picture in PICTURES:
            take(browser, picture, runs)
            print(f"docs/images/{picture.name}")


def make_runs(runs: Path) -> None:
    """Repeat the runs that README, concepts, tutorial and "Your script, your cluster" show."""
    examples = ROOT / "examples"
    outpace("compare", examples / "demo.yaml", "--out", runs / "demo")
    outpace("compare", examples / "ssp_waits.yaml", "--out", runs / "ssp")
    # Section 7 of the tutorial: a recording with another seed, a model of it, a run that uses it.
    outpace("compare", examples / "cutoff.yaml", "--out", runs / "cutoff")
    cluster = runs / "cutoff" / "BSP" / "config.yaml"
    timing = ("seed=1", "task={kind: timing, parameters: 38000}", "stop={iterations: 400}")
    outpace("simulate", cluster, *timing, "--out", runs / "recorded")
    model = runs / "pooled.safetensors"
    outpace("runtimes", "fit", runs / "recorded", "--model", "pooled", "-o", model)
    sync = f"sync={{kind: cutoff, model: pooled, file: '{model}'}}"
    outpace("simulate", cluster, sync, "--out", runs / "pooled")
    # "Your script, your cluster": a real run, the cluster, and strategies in virtual time.
    script, arguments = examples / "train_mnist.py", ("--workers", "4", "--", "--epochs", "5")
    law = "compute={kind: lognormal, mean_s: 0.1, cv: 0.3, factors: [1, 1, 1, 2]}"
    outpace("run", script, law, "--out", runs / "first", *arguments)
    outpace("calibrate", runs / "first", "-o", runs / "cluster.yaml")
    given = ("--variants", examples / "script_strategies.yaml", "--cluster", runs / "cluster.yaml")
    options = ("--seeds", "3", "--target-accuracy", "0.93", "--out", runs / "script")
    outpace("compare", script, *given, *options, *arguments)


def outpace(*arguments: str | Path) -> None:
    subprocess.run([sys.executable, "-m", "outpace", *map(str, arguments)], check=True)


def take(browser: str, picture: Picture, runs: Path) -> None:
    """Write one picture: measure the page's height first, then take it."""
    head, _, tail = (runs / picture.report).read_text(encoding="utf-8").rpartition("</body>")
    prepare = PREPARE.replace("__SECTIONS__", str(list(picture.sections)))
    prepare = prepare.replace("__HEADER__", str(picture.header).lower())
    page = (runs / picture.report).with_name(
        "picture.html"
    )  # finds plotly.js where the report does
    page.write_text(head + prepare + tail, encoding="utf-8")
    shown = browse(browser, page, picture.width, 900, "--dump-dom")
    height = re.search(r'data-height="(\d+)"', shown)
    if height is None:
        raise RuntimeError(f"{picture.name}: the script of {picture.report} did not finish")
    file = IMAGES / picture.name
    browse(browser, page, picture.width, int(height[1]), f"--screenshot={file}")


def browse(browser: str, page: Path, width: int, height: int, *options: str) -> str:
    """Open a page in a window of this size and return what the browser prints."""
    done = subprocess.run(
        [
            browser,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--disable-dev-shm-usage",
            f"--user-data-dir={page.parent / 'profile'}",
            f"--window-size={width},{height}",
            "--virtual-time-budget=8000",
            *options,
            page.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return done.stdout


if __name__ == "__main__":
    main()
