"""/healthz and /metrics."""

from __future__ import annotations

from collections import Counter
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from specviz.app.health import health_routes
from specviz.schema.trace import Round
from specviz.serving.service import Service
from specviz.serving.statistics import EngineStatistics

STATISTICS = EngineStatistics(
    "embedded", 32, loaded=True, running=2, waiting=1, finished=Counter(eos=3), tokens=500
)
ROUNDS: list[Any] = [("ab", "abcd", 2, 1), ("abcde", "abcde", 5, 5), ("a", "", 0, 0)]
for tokens, proposals, examined, accepted in ROUNDS:
    STATISTICS.count(Round(0, 0, proposals, examined, accepted, 0.0, 0.0, 0.0, tokens))
STATISTICS.time_to_first_token.add(0.25)
STATISTICS.time_to_first_token.add(100)


class Serving(Service):
    def status(self) -> list[EngineStatistics]:
        return [STATISTICS]


def get(service: Service, path: str) -> httpx.Response:
    return TestClient(Starlette(routes=health_routes(service))).get(path)


def test_a_server_names_its_pairs_or_answers_503_without_a_reason() -> None:
    pairs = {"embedded": {"loaded": True, "running": 2, "waiting": 1}}
    service = Serving()
    for status, words in ((200, "ok"), (503, "down")):
        answer = get(service, "/healthz")
        assert (answer.status_code, answer.headers["cache-control"]) == (status, "no-store")
        assert answer.json() == {"status": words, "pairs": pairs}
        service.close()


def test_metrics_are_served_on_request_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPECVIZ_METRICS", raising=False)
    assert get(Serving(), "/metrics").status_code == 404
    monkeypatch.setenv("SPECVIZ_METRICS", "1")
    answer = get(Serving(), "/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    assert {
        'specviz_texts_finished_total{pair="embedded",reason="eos"} 3.0',
        'specviz_tokens_total{pair="embedded"} 508.0',
        'specviz_spec_decode_num_accepted_tokens_total{pair="embedded"} 6.0',
        'specviz_spec_decode_num_accepted_tokens_per_pos_total{pair="embedded",position="4"} 1.0',
        'specviz_time_to_first_token_seconds_bucket{le="0.25",pair="embedded"} 1.0',
        'specviz_time_to_first_token_seconds_bucket{le="+Inf",pair="embedded"} 2.0',
        'specviz_time_to_first_token_seconds_sum{pair="embedded"} 100.25',
        "# TYPE specviz_texts_running gauge",
    } <= set(answer.text.splitlines())
