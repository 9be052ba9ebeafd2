/**
 * The live chart of acceptance, drawn by Plotly if there is one. Knows tokens and rounds, not the text around them.
 */

import { finite, isExamined } from "../shared/dom.js";

const WINDOW = 16; // examined proposals in the rolling acceptance

/** The live chart. It collects points at once and draws when it can: Plotly may come late or never. */
export function createChart(panel, colours, onPoint) {
  const node = panel.querySelector(".sv-chart");
  const note = panel.querySelector(".sv-chart-note");
  const legend = panel.querySelector(".sv-chart-legend");
  let Plotly = null;
  let x, cumulative, rolling, bars, outcomes, accepted, marked, reason;
  let scheduled = false;
  let wired = false;
  let revision = 0;
  let drawn = 0; // when the last drawing ended, in ms
  let pause = 0; // how long to leave the browser alone after it

  function reset() {
    [x, cumulative, rolling, outcomes] = [[], [], [], []];
    bars = { x: [], y: [], width: [], customdata: [] };
    accepted = 0;
    marked = null;
    reason = "";
    schedule();
  }

  function add(items, round, run) {
    for (const { token, index } of items) {
      const examined = isExamined(token);
      if (examined) {
        outcomes.push(token.accepted ? 1 : 0);
        accepted += token.accepted ? 1 : 0;
      }
      const recent = outcomes.slice(-WINDOW);
      x.push(index + 1);
      cumulative.push(examined ? accepted / outcomes.length : null);
      rolling.push(examined ? recent.reduce((sum, one) => sum + one, 0) / recent.length : null);
    }
    if (items.length > 0 && round.examined > 0) {
      bars.x.push((items[0].index + items[items.length - 1].index) / 2 + 1);
      bars.y.push(finite(round.accepted));
      bars.width.push(items.length - 0.25);
      bars.customdata.push(items[0].index);
    }
    if (run.method === "verifier_only") reason = "Nothing is examined: the verifier writes every token.";
    if (run.method === "drafter_only") reason = "Nothing is examined: every draft is kept.";
    schedule();
  }

  function traces(look) {
    const line = (name, y, colour, width, dash) => ({
      type: "scatter", mode: "lines", name, x, y, yaxis: "y2", connectgaps: false,
      line: { color: colour, width, dash }, hovertemplate: "%{y:.0%}",
    });
    return [
      line("acceptance rate", cumulative, look.strong, 2.5, "solid"),
      line("last " + WINDOW, rolling, look.accent, 1.5, "dot"),
      { type: "bar", name: "accepted in round", ...bars, marker: { color: look.bar }, hovertemplate: "%{y}" },
    ];
  }

  function layout(look) {
    const words = reason || (x.length === 0 ? "The acceptance rate will be drawn here." : "");
    const axis = { fixedrange: true, zeroline: false, linecolor: look.line, tickcolor: look.line, gridcolor: look.line };
    const side = { ...axis, visible: words === "" };
    return {
      datarevision: revision, autosize: true, dragmode: false, hovermode: "x unified", bargap: 0, showlegend: false,
      margin: { l: 42 * look.scale, r: 30 * look.scale, t: 8, b: 36 * look.scale },
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: look.font, size: 11 * look.scale, color: look.text },
      hoverlabel: { bgcolor: look.panel, bordercolor: look.line, font: { color: look.text } },
      xaxis: { ...axis, visible: x.length > 0, showgrid: false, tickformat: "d", title: { text: "token", standoff: 4 },
        range: [0.4, Math.max(20, x.length) + 0.6] },
      yaxis: { ...side, side: "right", showgrid: false, tickformat: "d", nticks: 6,
        range: [0, 1.06 * Math.max(4, ...bars.y)] },
      yaxis2: { ...side, side: "left", overlaying: "y", range: [0, 1.06], tickformat: ".0%",
        tickmode: "array", tickvals: [0, 0.25, 0.5, 0.75, 1] },
      shapes: marked === null ? [] : [{ type: "line", x0: marked + 1, x1: marked + 1, yref: "paper", y0: 0, y1: 1,
        line: { color: look.text, width: 1.5 } }],
      annotations: words ? [{ text: words, showarrow: false, xref: "paper", yref: "paper", x: 0.5, y: 0.5,
        font: { size: 13 * look.scale, color: look.muted } }] : [],
    };
  }

  async function draw() {
    scheduled = false;
    if (!Plotly || node.clientWidth === 0) return;
    const start = performance.now();
    const look = colours();
    legend.hidden = reason !== "" || x.length === 0;
    revision += 1;
    await Plotly.react(node, traces(look), layout(look), { displayModeBar: false, responsive: false });
    if (!wired) node.on("plotly_click", ({ points }) => onPoint(points[0].customdata ?? Math.round(points[0].x) - 1));
    wired = true;
    drawn = performance.now();
    pause = 9 * (drawn - start);
  }

  /** Draw in a coming frame; on a slow machine less often, so that the text keeps flowing. */
  function schedule() {
    if (scheduled) return;
    scheduled = true;
    const wait = drawn + pause - performance.now();
    setTimeout(() => requestAnimationFrame(draw), Math.max(0, wait));
  }

  function mark(index) {
    marked = index;
    schedule();
  }

  function use(loaded) {
    Plotly = loaded || null;
    node.hidden = Plotly === null;
    note.hidden = Plotly !== null;
    note.textContent = "The chart could not be loaded; text and inspector work without it.";
    schedule();
  }

  return { reset, add, mark, use, schedule, node };
}
