"""/healthz and /metrics: the server's health for machines."""

from __future__ import annotations

from collections import Counter

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from specviz.app.health import health_routes
from specviz.serving.service import Service
from specviz.serving.statistics import EngineStatistics

STATISTICS = EngineStatistics(
    "embedded",
    32,
    loaded=True,
    running=2,
    waiting=1,
    finished=Counter(eos=3, cancelled=1),
    refused=4,
    tokens=500,
    examined=300,
    accepted=200,
    rounds=90,
    busy_seconds=1.5,
    waited_seconds=0.25,
)


class Serving(Service):
    """A service of one pair with these numbers."""

    def status(self) -> list[EngineStatistics]:
        return [STATISTICS]


class Dead(Serving):
    """A service one of whose engines has died."""

    @property
    def healthy(self) -> bool:
        return False


class Broken(Service):
    """A service that fails even at this."""

    def status(self) -> list[EngineStatistics]:
        raise RuntimeError("/secret/path")


def client(service: Service) -> TestClient:
    return TestClient(Starlette(routes=health_routes(service)))


def test_a_server_that_can_serve_says_so_and_names_its_pairs() -> None:
    """200 while requests can be served, with each pair's load and nothing else."""
    answer = client(Serving()).get("/healthz")
    assert answer.status_code == 200
    assert answer.headers["cache-control"] == "no-store"
    assert answer.json() == {
        "status": "ok",
        "pairs": {"embedded": {"loaded": True, "running": 2, "waiting": 1}},
    }


@pytest.mark.parametrize("kind", [Dead, Broken, Service])
def test_a_server_that_cannot_serve_says_503_and_not_why(kind: type[Service]) -> None:
    """Closed, with a dead engine, or broken: 503, without a path or a message."""
    service = kind()
    if kind is Service:
        service.close()
    answer = client(service).get("/healthz")
    assert answer.status_code == 503
    assert answer.json()["status"] == "down"
    assert "secret" not in answer.text


def test_metrics_are_off_unless_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without SPECVIZ_METRICS=1 the address is as unknown as any."""
    monkeypatch.delenv("SPECVIZ_METRICS", raising=False)
    assert client(Serving()).get("/metrics").status_code == 404


def test_metrics_are_the_tallies_in_prometheus_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every number of the statistics is there, counters under names that end in _total."""
    monkeypatch.setenv("SPECVIZ_METRICS", "1")
    answer = client(Serving()).get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain")
    lines = set(answer.text.splitlines())
    for expected in (
        'specviz_texts_finished_total{pair="embedded",reason="eos"} 3.0',
        'specviz_texts_finished_total{pair="embedded",reason="cancelled"} 1.0',
        'specviz_texts_refused_total{pair="embedded"} 4.0',
        'specviz_tokens_total{pair="embedded"} 500.0',
        'specviz_proposals_examined_total{pair="embedded"} 300.0',
        'specviz_proposals_accepted_total{pair="embedded"} 200.0',
        'specviz_rounds_total{pair="embedded"} 90.0',
        'specviz_busy_seconds_total{pair="embedded"} 1.5',
        'specviz_waiting_seconds_total{pair="embedded"} 0.25',
        'specviz_texts_running{pair="embedded"} 2.0',
        'specviz_texts_waiting{pair="embedded"} 1.0',
        'specviz_rows{pair="embedded"} 32.0',
        'specviz_pair_loaded{pair="embedded"} 1.0',
        "# TYPE specviz_tokens_total counter",
        "# TYPE specviz_texts_running gauge",
    ):
        assert expected in lines, expected
