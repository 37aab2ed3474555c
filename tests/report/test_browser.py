"""The report in a browser: everything is drawn without errors, also on a phone."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from outpace.report.frame import write_library
from outpace.report.page import write_report

CHROMIUM = next(
    (p for name in ("chromium", "chromium-browser", "google-chrome") if (p := shutil.which(name))),
    None,
)

pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium"),
]

# Collects what is drawn after a click on every control; --dump-dom shows it.
PROBE = """<script>
const wanted = __WANTED__;
setTimeout(() => {  // plotly.js is unpacked by then
  for (const button of document.querySelectorAll("button[data-choice]")) button.click();
  for (const menu of document.querySelectorAll("select[data-choice]")) {
    menu.value = menu.options[menu.options.length - 1].value;
    menu.dispatchEvent(new Event("change", { bubbles: true }));
  }
}, 1500);
setTimeout(() => {
  const lines = wanted.map((id) => {
    const plot = document.getElementById(id).querySelector(".plot");
    const svg = plot.querySelectorAll("svg.main-svg").length;
    const drawn = plot.querySelectorAll(".point, .scatterlayer .js-line, .legend .traces").length;
    return [id, svg, drawn, Math.round(plot.getBoundingClientRect().height)].join("|");
  });
  const wide = document.documentElement.scrollWidth > document.documentElement.clientWidth;
  const remote = performance.getEntriesByType("resource").length;
  const probe = document.createElement("pre");
  probe.id = "probe";
  probe.textContent = ["PROBE", wide ? "wide" : "fits", remote, ...lines].join("\\n");
  document.body.append(probe);
}, 3000);
</script></body>"""


def look(path: Path, tmp_path: Path, width: int, figures: list[str]) -> list[str]:
    """Open the report with a probe in it; return the probe's lines. Fails on any console error."""
    html = path.read_text(encoding="utf-8")
    probed = tmp_path / "probed.html"
    probe = PROBE.replace("__WANTED__", str(figures))
    assert html.count("</body>") >= 1
    head, _, tail = html.rpartition("</body>")
    probed.write_text(head + probe + tail, encoding="utf-8")
    assert CHROMIUM is not None
    done = subprocess.run(
        [
            CHROMIUM,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--disable-dev-shm-usage",
            f"--user-data-dir={tmp_path / 'profile'}",
            f"--window-size={width},900",
            "--virtual-time-budget=8000",
            "--enable-logging=stderr",
            "--dump-dom",
            probed.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    complaints = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    assert not complaints, complaints
    (tmp_path / "dom.html").write_text(done.stdout)
    found = re.search(r'<pre id="probe">(.*?)</pre>', done.stdout, re.DOTALL)
    assert found, "the page's script did not come to its end"
    return found.group(1).splitlines()


FIGURES = ("progress", "cut-offs", "split", "workers", "timeline", "staleness")
EVERY = ["BSP", "SSP", "ASP", "cut-off", "failed", "timing"]


def require_drawn(path: Path, tmp_path: Path, width: int, figures: list[str]) -> None:
    """Fail unless the figures are drawn, the page fits into the window, and it loads nothing."""
    head, fits, remote, *lines = look(path, tmp_path, width, figures)
    assert (head, fits, remote) == ("PROBE", "fits", "0")
    assert len(lines) == len(figures)
    for line in lines:
        name, svg, drawn, height = line.split("|")
        assert int(svg) >= 2, line
        assert int(drawn) > 0 or name == "figure-heat", line  # that one is a picture
        assert 200 <= int(height) <= 1200, line


# Chromium opens no narrower window than 500.
@pytest.mark.parametrize("width", [1280, 500])
def test_a_report_draws_all_figures_without_complaint(simulated, tmp_path, width):
    path = tmp_path / "report.html"
    write_report([simulated[name] for name in EVERY], path)
    require_drawn(path, tmp_path, width, [f"figure-{name}" for name in FIGURES])


def test_a_page_says_if_the_plotly_js_that_it_shares_is_not_there(simulated, tmp_path):
    write_library(tmp_path)
    folder = tmp_path / "BSP"
    folder.mkdir()
    write_report([simulated["BSP"]], folder / "report.html")
    require_drawn(folder / "report.html", folder, 500, ["figure-progress"])
    (tmp_path / "plotly.js").unlink()
    look(folder / "report.html", folder, 500, ["figure-progress"])
    text = (folder / "dom.html").read_text()
    assert "This figure needs the file ../plotly.js, which is not there." in text
