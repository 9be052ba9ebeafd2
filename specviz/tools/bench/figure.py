"""A benchmark as a figure: speeds with quartiles, and every paired ratio. Needs plotly, which is optional here."""

from __future__ import annotations

import html
from collections.abc import Sequence

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from specviz.tools.bench.contenders import SPEED, VERIFIER_ONLY
from specviz.tools.bench.measurements import Measurements

_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")
_SYMBOLS = ("circle", "diamond", "square", "x")


def figure(bench: Measurements) -> go.Figure:
    """Medians and quartiles of tokens a second; beside them lossless decoding over each of the others, run by run."""
    names = [party.name for party in bench.present][::-1]
    against = SPEED if bench.of(SPEED) else VERIFIER_ONLY
    plot = make_subplots(
        cols=2,
        shared_yaxes=True,
        horizontal_spacing=0.03,
        subplot_titles=("tokens a second", f"{against} ÷ this, each run"),
    )
    for number, temperature in enumerate(bench.temperatures):
        colour, symbol = _COLOURS[number % len(_COLOURS)], _SYMBOLS[number % len(_SYMBOLS)]
        look = {"name": f"T = {temperature:g}", "legendgroup": str(number), "mode": "markers"}
        known = {name: found for name in names if (found := bench.speed(name, temperature))}
        error = {
            "type": "data",
            "symmetric": False,
            "array": [found.high - found.median for found in known.values()],
            "arrayminus": [found.median - found.low for found in known.values()],
            "color": colour,
        }
        marker = {"color": colour, "symbol": symbol, "size": 11}
        medians = [found.median for found in known.values()]
        plot.add_trace(
            go.Scatter(x=medians, y=list(known), marker=marker, error_x=error, **look), row=1, col=1
        )
        others = [name for name in names if name != against]
        pairs = [(ratio, name) for name in others for ratio in bench.ratios(against, name, temperature)]
        ratios, rows = zip(*pairs, strict=True) if pairs else ((), ())
        marker = {"color": colour, "symbol": f"{symbol}-open", "size": 8}
        plot.add_trace(go.Scatter(x=ratios, y=rows, marker=marker, showlegend=False, **look), row=1, col=2)
    plot.add_vline(x=1, line_dash="dot", line_color="#666", row=1, col=2)
    plot.update_xaxes(rangemode="tozero")
    plot.update_yaxes(automargin=True, categoryorder="array", categoryarray=names)
    plot.update_layout(
        template="plotly_white",
        height=190 + 34 * len(names),
        margin={"l": 20, "r": 20, "t": 90, "b": 40},
        title={"text": html.escape(f"{bench.pair}, {bench.machine}, {bench.date}")},
        legend={"orientation": "h", "y": -0.12},
    )
    return plot


def page(benches: Sequence[Measurements]) -> str:
    """One HTML page with all figures, plotly.js inside."""
    parts = [
        figure(bench).to_html(full_html=False, include_plotlyjs=number == 0)
        for number, bench in enumerate(benches)
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>SpecViz benchmarks</title></head>\n'
        '<body style="max-width:1200px;margin:auto">\n' + "\n".join(parts) + "\n</body></html>\n"
    )
