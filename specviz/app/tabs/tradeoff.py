"""The tab Speed or quality: recorded sweeps or the visitor's own, and the texts behind each point.

The browser handles temperature, axes and curves by itself. What it sends is untrusted.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import gradio as gr
from gradio.components import Component

from specviz.analysis.sweep.grid import SweepGrid
from specviz.analysis.sweep.results import Results
from specviz.app.components.compare_view import panes_value
from specviz.app.components.sweep_view import SweepView
from specviz.app.controls import drawer, pair_dropdown, run_buttons
from specviz.app.link import Pane, ranged
from specviz.app.running import QUIET, in_a_sentence, sent_with, wire_run
from specviz.app.settings import CONTROLS
from specviz.app.tabs.compare import Compare
from specviz.app.tabs.tradeoff_words import card, texts_of, told
from specviz.core.methods import METHODS, OWN_RULE
from specviz.errors import RequestError, StoppedError
from specviz.progress import Progress
from specviz.serving.limits import Visitor
from specviz.serving.offer import offered_pairs
from specviz.serving.service import Service

PREFIX = "tradeoff-"
POINTS, ITEMS = (2, 5), (8, 32)
"""Ranges of two numbers: leniences per method, and questions. The largest sweep takes minutes on two cores."""
MAX_METHODS, TOKENS = 4, 24
"""Maximum methods of a live sweep; maximum tokens of each text."""
UPDATE_SECONDS = 1.0
"""Minimum seconds between two updates of a running sweep."""
YOURS = "your own"
OWN = "own"
"""The live sweep's name in an address."""


def tradeoff_tab(
    page: gr.Blocks, service: Service, compare: Compare, tabs: gr.Tabs, recorded: Mapping[str, Results]
) -> Component:
    """Build the tab's content. It opens with the first of `recorded`. Texts open in `compare`, which is one of the `tabs`.

    Returns the pair dropdown of a live sweep.
    """
    events, live = TradeoffEvents(service, recorded), gr.State(Live())
    view = SweepView(events.shown(0), elem_id="tradeoff-view")
    own: Any = SimpleNamespace(elem_id="tradeoff-own", click=view.own)  # a button within the view
    with drawer("tradeoff-drawer", own):
        controls = _sweep_controls()
        buttons = run_buttons(PREFIX)

    def open_text(now: Live, request: gr.Request, event: gr.EventData) -> list[Any]:
        """Updates that open the chosen text in Compare: its settings, the view and the tab."""
        updates = compare.updates(events.text(now, event))
        compare.drop(request)
        return [*updates, gr.Tabs(selected="compare")]

    # A reader may click faster than answers come: the browser drops cards of other points and shows the sweep that was requested last.
    view.choose(events.choose, live, view, trigger_mode="multiple", **QUIET)
    view.show(events.show, live, view, trigger_mode="always_last", **QUIET)
    compare.run_after(view.open(open_text, live, [*compare.outputs, tabs], **QUIET))
    wire_run(
        page,
        events.run,
        triggers=[buttons[0].click],
        buttons=buttons,
        inputs={"live": live, **controls},
        view=view,
    )
    return controls["pair"]


def _sweep_controls() -> dict[str, Component]:
    """The controls for the arguments of `plan_of`, by argument."""
    offered = [(method.title, name) for name, method in METHODS.items() if method.has_lenience]
    heat = CONTROLS["temperature"]
    low, high = heat.offered
    controls: dict[str, Component] = {}
    with gr.Row():
        with gr.Column(min_width=280):
            controls["pair"] = pair_dropdown(PREFIX)
            controls["methods"] = gr.CheckboxGroup(
                offered,
                value=["speed", "cascade_tokenV3"],
                label="Methods",
                info=f"At most {MAX_METHODS}; both models alone are always swept too.",
                elem_id="tradeoff-methods",
            )
        with gr.Column(min_width=280):
            controls["points"] = gr.Slider(
                *POINTS, 3, step=1, label="Leniences per method", elem_id="tradeoff-points"
            )
            controls["temperature"] = gr.Slider(
                low, high, 0.5, step=heat.step, label="Temperature", elem_id="tradeoff-heat"
            )
            controls["limit"] = gr.Slider(
                *ITEMS, ITEMS[0], step=4, label="Questions", elem_id="tradeoff-limit"
            )
    return controls


# ---- events


@dataclass
class Live:
    """The live sweep of a browser session, shared by its events. `sweep` is None before the first point, or without a live sweep."""

    sweep: Results | None = None


class TradeoffEvents:
    """Handlers of the tab's events. A sweep is identified by its index: the recorded sweeps in order, then the live sweep."""

    def __init__(self, service: Service, recorded: Mapping[str, Results]) -> None:
        """Handle the sweeps `recorded`, by title, and those that `service` runs."""
        self._service, self._titles, self._recorded = service, list(recorded), list(recorded.values())
        self._names = [sweep.name or title for title, sweep in recorded.items()]

    def shown(self, which: int, live: Live | None = None, *, said: str = "", failure: str = "") -> str:
        """The value of `SweepView` for the sweep with index `which`; `said` is a sentence about the sweep's progress."""
        sweeps = self._sweeps(live)
        count = max(len(sweeps), which + 1)
        value = {
            "titles": [*self._titles, YOURS][:count],
            "names": [*self._names, OWN][:count],
            "which": which,
            "sweep": told(sweeps[which]) if which < len(sweeps) else None,
        }
        return json.dumps(value | {"said": said, "failure": failure}, ensure_ascii=False)

    def _sweeps(self, live: Live | None) -> list[Results]:
        return [*self._recorded, *([live.sweep] if live and live.sweep else [])]

    def show(self, live: Live, event: gr.EventData) -> str:
        """Return the view's value for the sweep that the visitor has chosen."""
        return self.shown(_sent(self._sweeps(live), event, "sweep")[0], live)

    def choose(self, live: Live, event: gr.EventData) -> Any:
        """Return an update of the view's prop `card` for the point that the visitor has chosen."""
        which, sweep = _sent(self._sweeps(live), event, "sweep")
        index, point = _sent(sweep.points, event, "point")
        about = {"sweep": which, "point": index, **card(sweep, point)}
        return gr.update(card=json.dumps(about, ensure_ascii=False))

    def text(self, live: Live, event: gr.EventData) -> dict[str, Any]:
        """Settings for Compare that generate the chosen text again, beside the texts of each model alone and of lossless decoding."""
        _, sweep = _sent(self._sweeps(live), event, "sweep")
        _, point = _sent(sweep.points, event, "point")
        _, (own, _) = _sent(texts_of(sweep, point), event, "text")
        plan = sweep.plan
        setting = plan.settings[own.setting]
        panes = [(setting.method, setting.lenience)]
        panes += [(name, 0.0) for name in ("verifier_only", "drafter_only", "speed")]
        return {
            "pair": plan.pair,
            "prompt": sweep.items[own.item].prompt,
            "rule": METHODS[OWN_RULE].expression,  # a sweep uses the default rule
            **{name: each.default for name, each in ranged().items()},
            "temperature": setting.temperature,
            "max_new_tokens": plan.max_new_tokens,
            "seed": own.seed,
            "panes": panes_value(tuple(Pane(*each, plan.draft_length) for each in dict.fromkeys(panes))),
        }

    # ---- a live sweep

    def run(
        self, stop: threading.Event, progress: Progress, visitor: Visitor, asked: Mapping[str, Any]
    ) -> Iterator[str]:
        """Run a live sweep of a pair. Yields values of the view."""
        asked = dict(asked)
        live, which, failure = asked.pop("live"), len(self._recorded), ""
        try:
            key = asked.pop("pair")
            self._service.check_pair(key)
            plan = plan_of(key, **asked)
            live.sweep = None
            yield self.shown(which, live, said="The first answers are being written.")
            shown_at = time.monotonic()
            for sweep in self._service.sweep(key, plan, stop, progress, visitor=visitor):
                live.sweep = sweep
                if time.monotonic() - shown_at >= UPDATE_SECONDS:
                    yield self.shown(which, live, said=_progress_words(sweep, "Sweeping"))
                    shown_at = time.monotonic()
        except StoppedError:
            pass
        except Exception as error:
            failure = in_a_sentence(error)
        if live.sweep is None:
            yield self.shown(which, live, failure=failure or "Stopped before the first point was done.")
        else:
            yield self.shown(which, live, said=_progress_words(live.sweep, "Stopped"), failure=failure)


def plan_of(pair: str, methods: list[str], points: float, temperature: float, limit: float) -> SweepGrid:
    """The plan of a live sweep. Gradio checks the numbers against the ranges of their sliders.

    Raises:
        RequestError: there is no such pair, or there are not 1 to `MAX_METHODS` methods.
    """
    if pair not in offered_pairs():
        raise RequestError("Choose a model pair of the list.")
    if not 1 <= len(methods) <= MAX_METHODS:
        raise RequestError(f"Choose one to {MAX_METHODS} methods.")
    return SweepGrid(
        pair=pair,
        methods=tuple(methods),
        points=int(points),
        temperatures=(float(temperature),),
        limit=int(limit),
        max_new_tokens=TOKENS,
        timed=0,
    )


def _sent(found: Any, event: gr.EventData, name: str) -> tuple[int, Any]:
    """The index that the browser sent under `name`, and the item of `found` with this index. Raises RequestError for a wrong index."""
    index: Any = sent_with(event).get(name)
    if type(index) is int and 0 <= index < len(found):
        return index, found[index]
    raise RequestError(f"There is no such {name}.")


def _progress_words(sweep: Results, state: str) -> str:
    """A sentence about a sweep's progress. `state` is its first word while the sweep is unfinished."""
    return f"{'Done' if sweep.complete else state}: {len(sweep.given)} of {sweep.planned} texts."
