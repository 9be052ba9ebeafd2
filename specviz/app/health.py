"""/healthz and /metrics: the server's health. They contain numbers and pair names, but no texts, paths or versions."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from typing import Any

from prometheus_client import CollectorRegistry, Metric, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from specviz import environment
from specviz.serving.service import Service
from specviz.serving.statistics import BOUNDS

_FRESH = {"Cache-Control": "no-store"}
_COUNTER, _GAUGE, _HISTOGRAM = CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

METRICS: tuple[tuple[Any, ...], ...] = (
    (_COUNTER, "finished", "texts_finished", "Sequences that ended, by reason.", "reason"),
    (
        _COUNTER,
        "accepted_per_position",
        "spec_decode_num_accepted_tokens_per_pos",
        "Draft tokens accepted, by position in the draft.",
        "position",
    ),
    (_HISTOGRAM, "time_to_first_token", "time_to_first_token_seconds", "From arrival to the first tokens."),
    (
        _HISTOGRAM,
        "time_per_output_token",
        "request_time_per_output_token_seconds",
        "Of each sequence: time after its first tokens, per token after them.",
    ),
    (_COUNTER, "refused", "texts_refused", "Sequences refused: the queue was full."),
    (_COUNTER, "tokens", "tokens", "Tokens emitted."),
    (_COUNTER, "examined", "proposals_examined", "Draft tokens examined."),
    (_COUNTER, "drafts", "spec_decode_num_drafts", "Rounds of single sequences that examined draft tokens."),
    (_COUNTER, "draft_tokens", "spec_decode_num_draft_tokens", "Draft tokens of these rounds."),
    (_COUNTER, "accepted", "spec_decode_num_accepted_tokens", "Draft tokens accepted."),
    (_COUNTER, "rounds", "rounds", "Rounds of a batch."),
    (_COUNTER, "busy_seconds", "busy_seconds", "Seconds in prefill and rounds."),
    (_COUNTER, "waited_seconds", "waiting_seconds", "Seconds in the queue, summed over sequences."),
    (_GAUGE, "running", "texts_running", "Sequences in prefill or decoding."),
    (_GAUGE, "waiting", "texts_waiting", "Sequences in the queue."),
    (_GAUGE, "max_sequences", "rows", "Sequences that may decode at once."),
    (_GAUGE, "loaded", "pair_loaded", "Whether the pair is in memory."),
)
"""For each metric: kind, field of `EngineStatistics`, name without "specviz_", meaning, and optionally a second label after "pair".

Names with `spec_decode` are vLLM's. The output appends `_total` to the names of counters."""


def health_routes(service: Service) -> list[BaseRoute]:
    """The route /healthz, and /metrics if SPECVIZ_METRICS is 1."""

    def health(request: Request) -> Response:
        """Answer 200 while the service can serve requests, otherwise 503."""
        healthy = service.healthy
        pairs = {
            each.pair: {"loaded": each.loaded, "running": each.running, "waiting": each.waiting}
            for each in service.status()
        }
        content = {"status": "ok" if healthy else "down", "pairs": pairs}
        return JSONResponse(content, 200 if healthy else 503, _FRESH)

    def metrics(request: Request) -> Response:
        return Response(generate_latest(registry), headers=_FRESH, media_type=CONTENT_TYPE_PLAIN_0_0_4)

    if not environment.METRICS.value():
        return [Route("/healthz", health)]
    registry = CollectorRegistry()
    registry.register(_EngineCollector(service))
    ProcessCollector(registry=registry)  # memory, processor time, open files; on Linux only
    return [Route("/healthz", health), Route("/metrics", metrics)]


class _EngineCollector(Collector):
    """Reads a service's statistics whenever /metrics is scraped."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def collect(self) -> Iterator[Metric]:
        statistics = self._service.status()
        for kind, field, name, words, *label in METRICS:
            family: Any = kind(f"specviz_{name}", words, labels=["pair", *label])
            for each in statistics:
                value = getattr(each, field)
                if label:
                    for key, count in sorted(value.items()):
                        family.add_metric([each.pair, str(key)], count)
                elif kind is _HISTOGRAM:
                    buckets = zip((*map(str, BOUNDS), "+Inf"), accumulate(value.counts), strict=True)
                    family.add_metric([each.pair], list(buckets), value.total)
                else:
                    family.add_metric([each.pair], value)
            yield family
