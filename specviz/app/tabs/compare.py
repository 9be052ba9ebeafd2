"""The tab Compare methods: two to four runs of one prompt and seed, side by side in one view.

It opens with a recorded comparison. A recorded comparison's button shows it and sets the controls so that Run generates its texts live.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import gradio as gr
from gradio.components import Component

from specviz.analysis.recorded_runs import Comparison, read_recorded_runs
from specviz.app.components.compare_view import CompareView, Panes, panes_value
from specviz.app.components.rule_field import RuleField
from specviz.app.controls import (
    EXAMPLES,
    address_script,
    draft_length_dropdown,
    drawer,
    link_button,
    pair_dropdown,
    prompt_box,
    request_settings,
    run_buttons,
    sampling_controls,
    wire_settings,
)
from specviz.app.link import Link, Pane
from specviz.app.running import QUIET, grow, page_script, sent_with, wire_run
from specviz.app.tabs.generate import INSPECT, fill, form_of, fresh
from specviz.core.methods import OWN_RULE
from specviz.progress import Progress
from specviz.schema.settings import AUTO, Request
from specviz.schema.trace import Run
from specviz.serving.limits import Limits, Visitor
from specviz.serving.lines import record, table_line, tagged
from specviz.serving.offer import default_pair, offered_pairs
from specviz.serving.service import Service

PREFIX = "compare-"
TOKENS = 64
"""Initial limit on new tokens; lower than for one run, because four panes take longer."""


@dataclass(frozen=True)
class RecordedComparison:
    """A recorded comparison for the tab.

    Attributes:
        settings: the settings that generate the same texts live, by name: fields of `Request`, "pair" and "panes".
        lines: the view's value.
    """

    title: str
    settings: dict[str, Any]
    lines: str


def _recorded(told: Comparison, runs: list[Run], limits: Limits) -> RecordedComparison:
    settings = form_of(runs[0], limits)
    pair = settings.setdefault("pair", default_pair())
    others = [None if run.pair == pair else run.pair for run in runs]
    panes = [
        Pane(run.method, run.lenience, run.draft_length or AUTO, other)
        for run, other in zip(runs, others, strict=True)
    ]
    lines = [
        record("recorded", key=told.key, machine=told.machine, note=told.note),
        record("compare", panes=len(runs)),
    ]
    lines += [tagged(at, line) for at, run in enumerate(runs) for line in run.lines()]
    quality, seconds = [pane.quality for pane in told.panes], [pane.seconds for pane in told.panes]
    lines.append(table_line(runs, quality, seconds=seconds))
    return RecordedComparison(told.title, settings | {"panes": panes_value(panes)}, "".join(lines))


@dataclass(frozen=True)
class Compare:
    """The tab's components that other modules read and set."""

    settings: dict[str, Component]
    """The controls of the settings, by name: fields of `Request`, "pair" (of all panes) and "panes"."""
    view: CompareView
    recorded: dict[str, RecordedComparison]
    """The recorded comparisons by key; the tab opens with the first."""
    drop: Callable[[gr.Request], None]
    """Ends the run of a request's session and discards the run's further output."""
    run_after: Callable[[Any], None]
    """Lets an event of another part of the page start a run."""

    @property
    def outputs(self) -> list[Component]:
        """The components for which `updates` returns updates, in order."""
        return [*self.settings.values(), self.view]

    def updates(self, wanted: dict[str, Any], view: Any = "") -> list[Any]:
        """Updates that set the wanted settings, by name, and the value of the view, which is empty by default."""
        return [*fill(self.settings, wanted), view]

    def show(self, told: RecordedComparison | None) -> list[Any]:
        """Updates that show a recorded comparison; for None, updates that change nothing."""
        return self.updates(told.settings, told.lines) if told else self.updates({}, gr.skip())

    def opened(self, link: Link, *, renews: bool) -> list[Any]:
        """Updates for a link: its settings, and the recorded comparison with these settings, if there is one.

        With `renews`, settings that the link omits are reset; a link without settings shows the first recorded comparison.
        """
        if link.tab != "compare" or not (link.panes or link.settings):
            return self.show(next(iter(self.recorded.values())) if renews else None)
        wanted = link.settings | ({"panes": panes_value(link.panes)} if link.panes else {})
        for told in self.recorded.values():
            if all(_equal(told.settings.get(name), value) for name, value in wanted.items()):
                return self.show(told)
        return self.updates(fresh(self.settings, wanted) if renews else wanted)


def _equal(recorded: Any, wanted: Any) -> bool:
    return recorded == wanted or (recorded in ("", None) and wanted in ("", None))


def compare_tab(page: gr.Blocks, service: Service) -> Compare:
    """Build the tab's content, inside the caller's `gr.Tab`."""
    shelf = read_recorded_runs()
    recorded = {
        told.key: _recorded(told, [shelf.load(pane.run) for pane in told.panes], service.limits)
        for told in shelf.comparisons
    }
    opening = next(iter(recorded.values()))
    with gr.Column(elem_id="compare-place"):
        with gr.Row(elem_id="compare-bar"):
            known = [{"key": key, "title": each.title} for key, each in recorded.items()]
            panes = Panes(opening.settings["panes"], presets=known, elem_id="compare-panes")
            prompt = prompt_box(PREFIX)
            buttons = run_buttons(PREFIX)
            more = gr.Button("⚙ Settings", size="sm", min_width=40, elem_id="compare-more")
        with drawer("compare-drawer", more):
            with gr.Row():
                for name, text in EXAMPLES.items():
                    example = gr.Button(name, size="sm", min_width=70, elem_classes="specviz-example")
                    example.click(None, None, prompt, js=f"() => {json.dumps(text)}", **QUIET)
            with gr.Row():
                pair = pair_dropdown(PREFIX)
                length = draft_length_dropdown(
                    "compare-draft-length", "Of all panes. Changes the speed, never the text."
                )
            sampling = sampling_controls(service.limits, PREFIX)
            sampling["max_new_tokens"].value = min(TOKENS, service.limits.max_new_tokens)
            share = gr.Row(elem_classes="specviz-share")
        with gr.Column(visible=False, elem_id="compare-own-rule") as own_rule:
            rule = RuleField(elem_id="compare-rule")
        view = CompareView(opening.lines, group=PREFIX, elem_id="compare-view")
    for name, component in {"prompt": prompt, "draft_length": length, **sampling}.items():
        component.value = opening.settings.get(name, component.value)
    settings: dict[str, Component] = (
        {"pair": pair, "prompt": prompt, "rule": rule} | sampling | {"panes": panes}
    )
    with share:
        link_button("compare", settings, PREFIX)

    def shows_rule(panes: list[dict[str, Any]]) -> gr.Column:
        return gr.Column(visible=any(pane["method"] == OWN_RULE for pane in panes))

    gr.on([panes.input, panes.change], shows_rule, panes, own_rule, **QUIET)
    length.input(None, [length, panes], panes, js=page_script("set_draft_length"), **QUIET)
    panes.change(None, panes, length, js="(panes) => JSON.parse(panes)[0].draft_length", **QUIET)
    available = gr.JSON(visible=False)
    told = page_script("tell_form", GROUP=f"{PREFIX}pairs", NAMES=["offered"])

    def offered() -> list[str]:
        missing = service.obstacles()
        return [key for key in offered_pairs() if key not in missing]

    page.load(offered, None, available, **QUIET).then(None, available, None, js=told, **QUIET)

    def lines(
        stop: threading.Event, progress: Progress, visitor: Visitor, asked: dict[str, Any]
    ) -> Iterator[str]:
        shared, panes = asked.pop("pair"), asked.pop("panes")
        pairs = [pane.pop("pair") or shared for pane in panes]
        for each in dict.fromkeys(pairs):
            service.check_pair(each)
        inspect = INSPECT if asked["temperature"] == 0 else 0  # at 0, verdicts show both models' top tokens
        requests = [Request(inspect=inspect, **request_settings(asked | pane)) for pane in panes]
        return service.compare_lines(pairs, requests, stop, progress, visitor=visitor)

    triggers = [buttons[0].click, prompt.submit]
    wire_settings("compare", settings, triggers, PREFIX)
    run = partial(grow, lines)
    drop, after = wire_run(page, run, triggers=triggers, buttons=buttons, inputs=settings, view=view)

    def keep_address(event: Any) -> None:
        js = address_script("keepAddress", "compare", settings)
        event.then(None, list(settings.values()), None, js=js, **QUIET)

    def run_after(event: Any) -> None:
        keep_address(event)
        after(event)

    tab = Compare(settings, view, recorded, drop, run_after)

    def show(request: gr.Request, event: gr.EventData) -> list[Any]:
        drop(request)
        return tab.show(recorded.get(str(sent_with(event).get("index"))))

    keep_address(panes.select(show, None, tab.outputs, **QUIET))
    return tab
