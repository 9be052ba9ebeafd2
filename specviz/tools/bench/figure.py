"""A benchmark as a figure: speeds with quartiles, and every paired ratio. Imported only when a figure is asked for."""

from __future__ import annotations

import html
from collections.abc import Sequence

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from specviz.tools.bench.contenders import SPEED, VERIFIER_ONLY
from specviz.tools.bench.measurements import Bench

_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")
_SYMBOLS = ("circle", "diamond", "square", "x")


def figure(bench: Bench) -> go.Figure:
    """Medians and quartiles of tokens a second; beside them lossless decoding over each of the others, run by run."""
    names = [party.name for party in bench.present][::-1]
    against = SPEED if bench.of(SPEED) else VERIFIER_ONLY
    plot = make_subplots(
        cols=2,
        shared_yaxes=True,
        horizontal_spacing=0.03,
        subplot_titles=("tokens a second", f"{against} ÷ this, each run"),
    )
    for place, temperature in enumerate(bench.temperatures):
        colour, symbol = _COLOURS[place % len(_COLOURS)], _SYMBOLS[place % len(_SYMBOLS)]
        look = {"name": f"T = {temperature:g}", "legendgroup": str(place)}
        told = [(name, found) for name in names if (found := bench.speed(name, temperature))]
        plot.add_trace(
            go.Scatter(
                x=[found.median for _, found in told],
                y=[name for name, _ in told],
                mode="markers",
                marker={"color": colour, "symbol": symbol, "size": 11},
                error_x={
                    "type": "data",
                    "symmetric": False,
                    "array": [found.high - found.median for _, found in told],
                    "arrayminus": [found.median - found.low for _, found in told],
                    "color": colour,
                },
                **look,
            ),
            row=1,
            col=1,
        )
        pairs = [
            (ratio, name)
            for name in names
            if name != against
            for ratio in bench.ratios(against, name, temperature)
        ]
        plot.add_trace(
            go.Scatter(
                x=[ratio for ratio, _ in pairs],
                y=[name for _, name in pairs],
                mode="markers",
                marker={"color": colour, "symbol": f"{symbol}-open", "size": 8},
                showlegend=False,
                **look,
            ),
            row=1,
            col=2,
        )
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


def page(benches: Sequence[Bench]) -> str:
    """One HTML page with all figures, plotly.js inside."""
    parts = [
        figure(bench).to_html(full_html=False, include_plotlyjs=place == 0)
        for place, bench in enumerate(benches)
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>SpecViz benchmarks</title></head>\n'
        '<body style="max-width:1200px;margin:auto">\n' + "\n".join(parts) + "\n</body></html>\n"
    )
