"""A class: its key, its invitation, who is counted, and a QR code that holds the address and nothing else."""

from __future__ import annotations

import json
import re
from collections import Counter
from types import SimpleNamespace

import pytest
from markupsafe import Markup
from starlette.applications import Starlette
from starlette.testclient import TestClient

from specviz.app import classroom
from specviz.app.classroom import LAST_STEP, POLL_SECONDS, Classroom, class_address, class_routes, qr_code
from specviz.errors import SpecvizError
from specviz.serving.service import Service
from specviz.serving.statistics import EngineStatistics


class Serving(Service):
    """A service of one pair with some texts done."""

    def status(self) -> list[EngineStatistics]:
        return [EngineStatistics("embedded", 32, running=3, waiting=2)]


@pytest.fixture
def room() -> Classroom:
    return Classroom("http://192.168.1.7:7860")


@pytest.fixture
def client(room: Classroom) -> TestClient:
    return TestClient(Starlette(routes=class_routes(room, Serving())))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A time that tests move."""
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(classroom, "monotonic", lambda: clock.now)
    return clock


def test_the_code_is_the_address_and_only_the_teacher_has_the_key(
    room: Classroom, client: TestClient
) -> None:
    shown = client.get("/class").text
    assert "192.168.1.7:7860" in shown
    assert str(Markup(qr_code(room.address))) in shown
    assert room.secret not in shown
    assert "<form" not in shown
    teachers = client.get(room.teachers_address.removeprefix(room.address.rstrip("/")))
    assert "<form" in teachers.text
    assert teachers.headers["referrer-policy"] == "no-referrer"


def test_only_the_teacher_invites_and_may_take_it_back(room: Classroom, client: TestClient) -> None:
    """With the key everybody sees it from then on; without it nothing changes and a sentence says why."""
    invited = client.post("/class/invite", json={"key": room.secret, "lesson": "cascades", "step": 4})
    assert invited.status_code == 200
    link = {"lesson": "cascades", "step": 4, "link": "?lesson=cascades&step=4"}
    assert client.get("/class/now").json()["invitation"] == link
    for key in ("wrong", "", None, 7, [room.secret], "κλειδί"):
        refused = client.post("/class/invite", json={"key": key, "lesson": "cascades", "step": 9})
        assert refused.status_code == 403
    assert client.get("/class?key=wrong").status_code == 403
    assert client.get("/class/now").json()["invitation"] == link
    withdrawn = client.post("/class/invite", json={"key": room.secret})
    assert withdrawn.json() == {"here": 0, "running": 3, "waiting": 2, "wait": None, "invitation": None}
    assert client.get(f"/class/now?visitor={'0' * 24}").json()["here"] == 1
    assert withdrawn.headers["cache-control"] == "no-store"


def test_anything_else_is_refused_in_a_sentence(room: Classroom, client: TestClient) -> None:
    asked = [(lesson, 1) for lesson in ("<b>", "../x", None)]
    asked += [("cascades", step) for step in (0, LAST_STEP + 1, True, "1")]
    bodies = [json.dumps({"key": room.secret, "lesson": lesson, "step": step}) for lesson, step in asked]
    for body in (*bodies, b"", b"[]", b"\xff", b"[" * 100_000):
        refused = client.post("/class/invite", content=body)
        assert (refused.status_code, refused.json()["detail"][-1]) == (422, ".")


def test_pages_count_while_they_are_heard_of(room: Classroom, clock: SimpleNamespace) -> None:
    """Each once, however often it asks; gone when silent for three turns; names that no page draws, and a flood, are passed over."""
    for name in ("a" * 24, "a" * 24, "b" * 24, "", "<script>", "b" * 100):
        room.hear(name)
    assert room.here == 2
    clock.now = 2 * POLL_SECONDS
    room.hear("a" * 24)
    clock.now = 4 * POLL_SECONDS
    assert room.here == 1
    for number in range(1500):
        room.hear(f"{number:024x}")
    assert room.here == 1000


def test_the_wait_is_that_of_the_last_minutes(room: Classroom, clock: SimpleNamespace) -> None:
    """From what the engines count: an hour that was quiet does not hide a queue, nor an old queue a quiet one."""
    for clock.now, waited, ended, expected in (
        (0, 0.0, 100, None),
        (60, 30.0, 110, 3.0),
        (600, 30.0, 110, None),
        (610, 30.0, 120, 0.0),
    ):
        counted = EngineStatistics("embedded", 32, waited_seconds=waited, finished=Counter(eos=ended))
        assert room.wait([counted]) == expected


def test_the_address_is_the_machines_own_or_as_it_is_told() -> None:
    assert re.fullmatch(r"http://\d+\.\d+\.\d+\.\d+:7000/", class_address(7000, {}))
    told = {"SPECVIZ_CLASS_ADDRESS": "https://school.example/specviz"}
    assert Classroom(class_address(7000, told)).address == "https://school.example/specviz/"
    for wrong in ("school.example", "javascript:alert(1)", "http://", "http://x/?y=1"):
        with pytest.raises(SpecvizError, match="must be an address"):
            class_address(7000, {"SPECVIZ_CLASS_ADDRESS": wrong})
