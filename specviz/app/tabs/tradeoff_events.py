"""The events of the tab Speed or quality. Each changes the session's state and returns updates of the page.

The texts of a point are untrusted: they are shown as text only.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import gradio as gr
import plotly

from specviz import __version__
from specviz.analysis.sweep.folder import Recorded
from specviz.analysis.sweep.grid import SweepGrid
from specviz.analysis.sweep.results import Results
from specviz.app.components.compare_view import panes_value
from specviz.app.components.figure_view import figure_value
from specviz.app.components.point_card import card_value
from specviz.app.figures.tradeoff import figure
from specviz.app.link import Pane, ranged
from specviz.app.running import in_a_sentence
from specviz.app.tabs.compare import Compare
from specviz.app.tabs.tradeoff_controls import plan_of
from specviz.app.tabs.tradeoff_words import Text, asked, card, finding, source, texts_of
from specviz.core.methods import METHODS, OWN_RULE
from specviz.errors import StoppedError
from specviz.files import kept
from specviz.progress import Progress
from specviz.serving.service import Service

UPDATE_SECONDS = 1.0
"""Shortest time between two drawings of a running sweep."""
FIGURE_VERSION = "2"
"""Part of the key of the cached first figure. Raise it when the figure or its words change."""
NOTHING_RECORDED = "There is no recorded sweep in this copy of SpecViz; make one below."


@dataclass
class Showing:
    """What one browser session is looking at. All its events share it, since the axes may change while a sweep runs.

    Attributes:
        temperature, x, y: temperature and axes of the figure.
        is_live: whether it shows the session's own sweep, `live`, rather than the recorded one.
        number: number of live sweeps so far.
        said, failure: the line below the figure, and the error above it.
        texts: the texts of the chosen point.
    """

    temperature: float
    x: str = "rejection_rate"
    y: str = "accuracy"
    is_live: bool = False
    live: Recorded | None = None
    number: int = 0
    said: str = ""
    failure: str = ""
    texts: list[Text] = field(default_factory=list)


class TradeoffEvents:
    """One method per event; each takes the session's `Showing` first and returns updates for its outputs."""

    def __init__(self, service: Service, compare: Compare, recorded: Recorded | None) -> None:
        """Begin with the recorded sweep, if there is one."""
        self._service, self._compare, self._recorded = service, compare, recorded
        self.temperatures = recorded.results.temperatures if recorded else []
        self._middle = self.temperatures[len(self.temperatures) // 2] if self.temperatures else 0.0
        failure = "" if recorded else NOTHING_RECORDED
        self.start = Showing(self._middle, failure=failure)

    def _sweep(self, now: Showing) -> Recorded | None:
        return now.live if now.is_live else self._recorded

    def drawn(self, now: Showing) -> str:
        """The figure view's value."""
        sweep = self._sweep(now)
        if sweep is None:
            return figure_value(said=now.said, failure=now.failure)
        plot = figure(sweep.results, temperature=now.temperature, x=now.x, y=now.y)
        return figure_value(
            plot,
            csv=sweep.results.to_csv(),
            name="specviz-sweep",
            key=f"{now.number if now.is_live else 'recorded'} {now.temperature:g}",
            finding=finding(sweep.results, now.temperature),
            source=source(sweep.results, now.temperature),
            about=asked(sweep),
            said=now.said,
            failure=now.failure,
        )

    def first(self) -> str:
        """The first value of `drawn`. Cached, because drawing would take half a second at every start."""
        recorded = self._recorded
        if recorded is None or recorded.folder is None:
            return self.drawn(self.start)
        files = sorted(recorded.folder.folder.glob("*.json*"))
        versions = (FIGURE_VERSION, __version__, plotly.__version__)
        made_of = (*(each.encode() for each in versions), *(file.read_bytes() for file in files))
        return kept("sweep-figure.json", made_of, lambda: self.drawn(self.start))

    # ---- what is drawn

    def redraw(self, now: Showing, x: str, y: str) -> str:
        """Other axes: the figure."""
        now.x, now.y = x, y
        return self.drawn(now)

    def set_temperature(self, now: Showing, temperature: float) -> list[Any]:
        """Another temperature: the figure and the card."""
        now.temperature, now.texts = temperature, []
        return [self.drawn(now), ""]

    def show_recorded(self, now: Showing) -> list[Any]:
        """Back from a live sweep: the figure, the temperatures, the button itself, and the card."""
        now.is_live, now.said, now.failure, now.temperature, now.texts = False, "", "", self._middle, []
        offered = _temperatures(self.temperatures, now.temperature)
        return [self.drawn(now), offered, gr.Button(visible=False), ""]

    # ---- the chosen point and its texts

    def choose(self, now: Showing, event: gr.SelectData) -> Any:
        """A point was chosen: its card."""
        sweep = self._sweep(now)
        points = sweep.results.points if sweep else ()
        index = event.index
        if not sweep or not isinstance(index, int) or not 0 <= index < len(points):
            return gr.skip()
        now.texts = texts_of(sweep, points[index])
        return card_value(card(sweep.results, points[index], now.texts))

    def open_in_compare(self, now: Showing, starts: int, event: gr.SelectData) -> list[Any]:
        """Open a text of the card: Compare's settings and panes, the tab shown, and the number that starts its run."""
        sweep = self._sweep(now)
        index = event.index
        is_text = isinstance(index, int) and 0 <= index < len(now.texts)
        if sweep is None or not is_text or now.texts[index].item.raw:
            return [gr.skip()] * (len(self._compare.outputs) + 2)
        settings = in_compare(now.texts[index], sweep.results, now.temperature)
        return [*self._compare.updates(settings), gr.Tabs(selected="compare"), starts + 1]

    # ---- a live sweep

    def run(
        self,
        stop: threading.Event,
        progress: Progress,
        visitor: str,
        now: Showing,
        key: str,
        *settings: Any,
    ) -> Iterator[list[Any]]:
        """Sweep a pair; the figure, the temperatures, the button back to the recorded sweep, and the card."""
        now.is_live, now.live, now.said, now.failure, now.texts = True, None, "", "", []
        now.number += 1
        now.temperature = float(settings[2])
        offered, back = _temperatures([now.temperature], now.temperature), self._recorded is not None
        yield [self.drawn(now), offered, gr.Button(visible=back), ""]
        rest = [gr.skip()] * 3
        try:
            plan = plan_of(key, *settings)
            shown_at = time.monotonic()
            for sweep in self._service.sweep(key, plan, stop, progress, visitor=visitor):
                now.live, now.said = sweep, _progress_words(sweep.results, plan, "Sweeping")
                if time.monotonic() - shown_at >= UPDATE_SECONDS:
                    yield [self.drawn(now), *rest]
                    shown_at = time.monotonic()
        except StoppedError:
            pass
        except Exception as error:
            now.failure = in_a_sentence(error)
        if now.live is not None:
            now.said = _progress_words(now.live.results, plan, "Stopped")
        elif not now.failure:
            now.failure = "Stopped before the first point was done."
        yield [self.drawn(now), *rest]


def _temperatures(offered: list[float], chosen: float) -> gr.Radio:
    return gr.Radio([(f"{each:g}", each) for each in offered], value=chosen, visible=True)


def _progress_words(results: Results, plan: SweepGrid, state: str) -> str:
    """A sentence about a sweep's progress. `state` says what an unfinished sweep is doing."""
    done = sum(point.samples for point in results.points)
    planned = sum(results.items * plan.trials_at(setting.temperature) for setting in plan.settings)
    return f"{'Done' if done >= planned else state}: {done} of {planned} texts."


def in_compare(text: Text, results: Results, temperature: float) -> dict[str, Any]:
    """Compare's settings for this text again, beside both models and lossless decoding."""
    plan = results.plan
    rule = METHODS[OWN_RULE].expression  # a sweep uses the default rule
    settings: dict[str, Any] = {"pair": plan.pair, "prompt": text.item.prompt, "rule": rule}
    settings |= {name: each.default for name, each in ranged().items()}
    settings |= {"temperature": temperature, "max_new_tokens": plan.max_new_tokens, "seed": text.seed}
    others = (Pane(name, 0.0, text.pane.draft_length) for name in ("verifier_only", "drafter_only", "speed"))
    panes = tuple(dict.fromkeys((text.pane, *others)))
    return settings | {"panes": panes_value(panes)}
