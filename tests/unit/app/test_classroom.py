"""A class: its limits, its secret, its invitation, who is counted, and a QR code that holds the address and nothing else."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest
from markupsafe import Markup
from starlette.applications import Starlette
from starlette.testclient import TestClient

from specviz.app.class_routes import class_routes, qr_code
from specviz.app.classroom import LAST_STEP, POLL_SECONDS, Classroom, class_address, invitation
from specviz.errors import RequestError, SpecvizError
from specviz.serving.service import Service
from specviz.serving.statistics import EngineStatistics

ADDRESS = "http://192.168.1.7:7860/"
SECRET = "the-key"


class Clock:
    """A time that tests move."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


class Serving(Service):
    """A service of one pair with some texts done."""

    def status(self) -> list[EngineStatistics]:
        return [EngineStatistics("embedded", 32, running=3, waiting=2)]


@pytest.fixture
def room() -> Classroom:
    return Classroom(ADDRESS, SECRET)


@pytest.fixture
def client(room: Classroom) -> TestClient:
    return TestClient(Starlette(routes=class_routes(room, Serving())))


def test_the_code_is_the_address_and_only_the_teacher_has_the_secret(
    room: Classroom, client: TestClient
) -> None:
    shown = client.get("/class").text
    assert "192.168.1.7:7860" in shown
    assert str(Markup(qr_code(room.address))) in shown
    assert SECRET not in shown
    assert "<form" not in shown
    teachers = client.get(f"/class?key={SECRET}")
    assert "<form" in teachers.text
    assert teachers.headers["referrer-policy"] == "no-referrer"
    assert room.teachers_address == f"{ADDRESS}class?key={SECRET}"
    assert Classroom(ADDRESS).secret != Classroom(ADDRESS).secret


def test_only_the_teacher_invites_and_may_take_it_back(room: Classroom, client: TestClient) -> None:
    """With the secret everybody sees it from then on; without it nothing changes and a sentence says why."""
    invited = client.post("/class/invite", json={"key": SECRET, "lesson": "cascades", "step": 4})
    assert invited.status_code == 200
    link = {"lesson": "cascades", "step": 4, "link": "?lesson=cascades&step=4"}
    assert client.get("/class/now").json()["invitation"] == link
    for key in ("wrong", "", None, 7, ["the-key"], "κλειδί"):
        refused = client.post("/class/invite", json={"key": key, "lesson": "cascades", "step": 9})
        assert refused.status_code == 403
        assert "not the teacher's address" in refused.json()["detail"]
    assert client.get("/class?key=wrong").text.count("\n") == 0
    assert client.get("/class?key=wrong").status_code == 403
    assert client.get("/class/now").json()["invitation"] == link
    withdrawn = client.post("/class/invite", json={"key": SECRET})
    assert withdrawn.json() == {"here": 0, "running": 3, "waiting": 2, "wait": None, "invitation": None}
    assert client.get(f"/class/now?visitor={'0' * 24}").json()["here"] == 1
    assert withdrawn.headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    ("lesson", "step", "sentence"),
    [
        ("<b>", 1, "no such lesson; there are cascades"),
        ("../x", 1, "no such lesson"),
        (None, 1, "no such lesson"),
        ("cascades", 0, f"from 1 to {LAST_STEP}"),
        ("cascades", LAST_STEP + 1, "whole number"),
        ("cascades", 1.5, "whole number"),
        ("cascades", True, "whole number"),
        ("cascades", "1", "whole number"),
    ],
)
def test_what_is_no_step_of_a_lesson_is_refused_in_a_sentence(
    client: TestClient, lesson: Any, step: Any, sentence: str
) -> None:
    with pytest.raises(RequestError, match=sentence):
        invitation(lesson, step)
    refused = client.post("/class/invite", json={"key": SECRET, "lesson": lesson, "step": step})
    assert refused.status_code == 422
    assert sentence in refused.json()["detail"]


@pytest.mark.parametrize("body", [b"", b"[]", b"null", b"{", b"\xff", b"[" * 100_000, b'"x"'])
def test_a_body_that_is_no_invitation_is_a_sentence(client: TestClient, body: bytes) -> None:
    refused = client.post("/class/invite", content=body)
    assert refused.status_code == 422
    assert refused.json()["detail"].startswith("An invitation is a JSON object")


def test_pages_count_while_they_are_heard_of() -> None:
    """Each once, however often it asks; gone when silent for three turns; names that no page draws, and a flood, are passed over."""
    clock = Clock()
    room = Classroom(ADDRESS, clock=clock)
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


def test_the_wait_is_that_of_the_last_minutes() -> None:
    """From what the engines count: an hour that was quiet does not hide a queue, nor an old queue a quiet one."""
    clock = Clock()
    room = Classroom(ADDRESS, clock=clock)

    def counted(waited: float, ended: int) -> list[EngineStatistics]:
        return [EngineStatistics("embedded", 32, waited_seconds=waited, finished=Counter(eos=ended))]

    assert room.wait(counted(0.0, 100)) is None
    clock.now = 60
    assert room.wait(counted(30.0, 110)) == 3.0
    clock.now = 600
    assert room.wait(counted(30.0, 110)) is None
    clock.now = 610
    assert room.wait(counted(30.0, 120)) == 0.0


def test_the_address_is_the_machines_own_or_as_it_is_told() -> None:
    """Never 127.0.0.1 where there is a network; behind a proxy the environment names it."""
    own = class_address(7000, {})
    assert re.fullmatch(r"http://\d+\.\d+\.\d+\.\d+:7000/", own)
    told = {"SPECVIZ_CLASS_ADDRESS": "https://school.example/specviz"}
    assert Classroom(class_address(7000, told)).address == "https://school.example/specviz/"
    for wrong in ("school.example", "javascript:alert(1)", "http://", "http://x/?y=1"):
        with pytest.raises(SpecvizError, match="must be an address"):
            class_address(7000, {"SPECVIZ_CLASS_ADDRESS": wrong})
