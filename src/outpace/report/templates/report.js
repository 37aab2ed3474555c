// Draws the figures and lets their controls switch between views. The data is in #figures;
// colours of text and grid come from the style sheet, for light and dark.
(() => {
  "use strict";
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const narrow = matchMedia("(max-width: 600px)");
  const coarse = matchMedia("(pointer: coarse)");
  const FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, sans-serif';

  const colours = () => {
    const style = getComputedStyle(document.documentElement);
    const of = (name) => style.getPropertyValue(`--${name}`).trim();
    return { ink: of("ink"), muted: of("muted"), grid: of("grid"), card: of("card"), line: of("line") };
  };

  const layoutOf = (figure, view) => {
    const { ink, muted, grid, card, line } = colours();
    const layout = structuredClone(view.layout);
    const fixed = coarse.matches || narrow.matches;
    for (const name of ["xaxis", "yaxis"]) {
      const axis = layout[name];
      Object.assign(axis, { gridcolor: grid, linecolor: line, fixedrange: fixed });
      axis.title = { ...axis.title, font: { size: 12, color: muted }, standoff: 8 };
    }
    return Object.assign(layout, {
      font: { family: FONT, size: narrow.matches ? 11 : 12, color: muted },
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      height: heightOf(figure),
      margin: { l: narrow.matches ? 38 : 56, r: 10, t: 34, b: 44 },
      legend: { orientation: "h", x: 0, y: 1, xanchor: "left", yanchor: "bottom",
        traceorder: "normal", font: { color: ink } },
      showlegend: true,
      hoverlabel: { bgcolor: card, bordercolor: line, font: { color: ink, family: FONT, size: 12 }, align: "left" },
      dragmode: fixed ? false : "zoom",
      modebar: { bgcolor: "rgba(0,0,0,0)", color: muted, activecolor: ink },
    });
  };

  // On a phone the legend may take a row per entry.
  const heightOf = (figure) => {
    if (!narrow.matches) return figure.height;
    const entries = Math.max(...Object.values(figure.views).map((view) => view.data.length));
    return (figure.tall ? figure.height : 290) + 18 * entries;
  };

  // The buttons are named one by one, because among plotly's own is one that uploads the data.
  const config = () => ({
    responsive: true,
    displaylogo: false,
    plotlyServerURL: "",
    displayModeBar: narrow.matches || coarse.matches ? false : "hover",
    modeBarButtons: [["zoom2d", "pan2d", "resetScale2d", "toImage"]],
  });

  const mount = (id, figure) => {
    const element = document.getElementById(id);
    const plot = element.querySelector(".plot");
    const caption = element.querySelector("figcaption");
    const chosen = new Array(figure.choices).fill(0);
    const draw = () => {
      const view = figure.views[chosen.join(",")];
      caption.textContent = view.note;
      plot.style.height = `${heightOf(figure)}px`;
      return Plotly.react(plot, view.data, layoutOf(figure, view), config());
    };
    const choose = (control) => {
      const place = Number(control.dataset.choice);
      chosen[place] = Number(control.value);
      for (const button of element.querySelectorAll(`button[data-choice="${place}"]`)) {
        button.setAttribute("aria-pressed", String(button === control));
      }
      draw();
    };
    element.addEventListener("click", (event) => {
      const button = event.target.closest("button[data-choice]");
      if (button) choose(button);
    });
    element.addEventListener("change", (event) => {
      if (event.target.matches("select[data-choice]")) choose(event.target);
    });
    for (const query of [dark, narrow, coarse]) query.addEventListener("change", draw);
    draw();
  };

  // plotly.js and the data are compressed: they would be most of the page's size.
  const unpacked = (text) => {
    const packed = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(stream).text();
  };

  const say = (text) => {
    for (const plot of document.querySelectorAll(".plot")) {
      plot.textContent = text;
      plot.style.height = "auto";
    }
  };

  const drawAll = async () => {
    const script = document.createElement("script");
    script.textContent = await unpacked(window.packedPlotly);
    document.head.append(script);
    const figures = JSON.parse(await unpacked(document.getElementById("figures").textContent));
    for (const [id, figure] of Object.entries(figures)) mount(id, figure);
  };

  if (!window.packedPlotly) {
    const name = document.getElementById("plotly").getAttribute("src");
    say(`This figure needs the file ${name}, which is not there. Copy the whole folder of the ` +
      "comparison, or make a page with everything inside: outpace report FOLDER --out page.html");
  } else {
    drawAll().catch((error) => say(
      `This figure cannot be drawn (${error}): open the page in a browser of 2023 or later.`));
  }
})();
