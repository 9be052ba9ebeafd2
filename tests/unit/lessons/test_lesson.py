"""Lessons: the project's own is whole in both languages; an error in a file is one sentence that says where it is."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import parse_qsl

import pytest
import yaml
from starlette.applications import Starlette
from starlette.testclient import TestClient

from specviz.app.components.lessons import lesson_route
from specviz.app.link import parse_link
from specviz.environment import LESSONS
from specviz.lessons.lesson import FOLDER, BrokenLesson, Lesson, read_lessons, read_words, shown_lessons
from specviz.lessons.pictures import KINDS
from tests.support.lessons import PICTURES, TEXT, write_lesson

OWN = read_lessons()


def own() -> Lesson:
    lesson = OWN["cascades"]
    assert isinstance(lesson, Lesson), lesson
    return lesson


def read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Lesson | BrokenLesson:
    monkeypatch.setenv(LESSONS.name, str(folder.parent))
    return read_lessons()[folder.name]


def test_the_own_lesson_is_whole_in_both_languages() -> None:
    """Twenty minutes without its deeper steps; each step has a guess and notes."""
    steps = own().steps
    assert sum(step.minutes for step in steps) == own().cover()["minutes"] == 20
    assert all(bool(step.minutes) != step.texts["en"].deeper for step in steps)
    for step in steps:
        assert set(step.texts) == {"en", "de"}
        for text in step.texts.values():
            assert len(text.choices) >= 2, text.title
            assert all((text.title, text.before, text.question, text.answer, text.notes)), text.title
    assert own().words["de"].keys() == own().words["en"].keys()


def test_the_right_answers_agree_with_what_was_measured() -> None:
    """So that a new recording, of other times, cannot make the lesson wrong."""
    values = {step.texts["en"].title.split(":")[0]: step.picture.values for step in own().steps}
    assert values["The large model checks all guesses in one call"]["ratio"][1] < 1.5
    assert values["Quality against cost"]["saved"][1] < 0.25
    alone, five, sixteen = (
        values["Where it fails"][f"{name}.seconds"][1] for name in ("alone", "five", "sixteen")
    )
    assert sixteen > max(alone, five)


STEP = "mine/pictures.yaml, step 1"


@pytest.mark.parametrize(
    ("files", "where", "says"),
    [
        ({"pictures.yaml": PICTURES.replace("coin", "cion")}, STEP, "“cion”"),
        ({"pictures.yaml": PICTURES.replace("lossless", "../../index")}, STEP, "no recorded run"),
        ({"pictures.yaml": PICTURES.replace("39", "soon")}, STEP, "“token”"),
        ({"pictures.yaml": PICTURES + "  colour: red\n"}, STEP, "“colour”"),
        ({"pictures.yaml": "- kind: !!python/object/apply:os.system [x]\n"}, "mine/pictures.yaml, line 1", "not plain YAML"),
        ({"pictures.yaml": 2 * PICTURES}, "mine/pictures.yaml", "2 pictures for 1 steps"),
        ({"pictures.yaml": PICTURES + "  minutes: 2024-13-45\n"}, "mine/pictures.yaml", "numbers"),
        ({"pictures.yaml": PICTURES + "  minutes: .inf\n"}, "mine/pictures.yaml", "numbers"),
        ({"pictures.yaml": "[" * 2000}, "mine/pictures.yaml", "numbers"),
        ({"pictures.yaml": "- {kind: rule, run: lossless, token: 39, methods: {}}\n"}, STEP, "one or two methods"),
        ({"en.md": TEXT.replace("{q}", "{quality}")}, "mine/en.md, step 1", "{quality}"),
        ({"en.md": TEXT.replace("[ ]", "[x]")}, "mine/en.md, step 1", "one right choice"),
        ({"en.md": ""}, "mine", "en.md"),
        ({"de.md": TEXT.replace("- [x] It goes\n", "- [x] Weg\n- [ ] Halb\n")}, "mine/de.md, step 1", "differ"),
    ],
)  # fmt: skip
def test_an_error_is_one_sentence_that_says_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], where: str, says: str
) -> None:
    broken = read(write_lesson(tmp_path / "mine", **files), monkeypatch)
    assert isinstance(broken, BrokenLesson)
    assert broken.problem.startswith(f"{where}: ")
    assert says in broken.problem
    assert str(tmp_path) not in broken.problem


def test_a_lesson_may_bring_its_own_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_lesson(tmp_path / "mine", **{"pictures.yaml": "- {kind: coin, run: my-run, token: 2}\n"})
    (folder / "runs").mkdir()
    (folder / "en.md").write_bytes(b"# x\n\n## \xff\n")
    assert "cannot be read as UTF-8" in getattr(read(folder, monkeypatch), "problem", "")
    (folder / "en.md").write_text(TEXT.lstrip("\n").replace("\n", "\r\n"), encoding="utf-8")
    trace = (FOLDER.parent / "runs" / "lossless.jsonl").read_text(encoding="utf-8")
    (folder / "runs" / "my-run.jsonl").write_text(trace, encoding="utf-8")
    lesson = read(folder, monkeypatch)
    assert isinstance(lesson, Lesson), lesson
    [step] = lesson.steps
    text = step.texts["en"]
    assert (text.before, text.question, text.right) == ("The drafter gave it {q}.", "Will it stay?", 1)
    assert (text.answer, text.notes) == ("It went, with {chance}.", "Say something.")
    assert (lesson.texts["en"].about, lesson.texts["en"].end) == ("About it.", "The end of it.")
    (folder / "runs" / "my-run.jsonl").write_text(trace[:5000], encoding="utf-8")
    assert isinstance(read(folder, monkeypatch), BrokenLesson)


def test_words_alone_may_come_with_the_text_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Marks may have any spaces, and a note goes on over lines with > in them."""
    text = "# x\n\n## y\n\nWhich?\n\n-   [ ] p\n-   [x] q\n\nThis.\n\n> if p > q,\n>then p\n>\n> Or q.\n"
    pictures = "- {kind: text, run: lossless}\n"
    lesson = read(write_lesson(tmp_path / "mine", **{"en.md": text, "pictures.yaml": pictures}), monkeypatch)
    assert isinstance(lesson, Lesson), lesson
    [step] = lesson.steps
    assert step.picture.data["tokens"]
    assert (step.texts["en"].right, step.texts["en"].notes) == (1, "if p > q, then p\nOr q.")


def test_the_documented_example_is_a_lesson(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    document = (FOLDER.parents[1] / "docs" / "lessons.md").read_text(encoding="utf-8")
    assert all(f"| `{kind}` |" in document for kind in KINDS)
    text, pictures = (
        re.findall(rf"```{kind}\n(.*?)```", document, re.DOTALL)[0] for kind in ("markdown", "yaml")
    )
    lesson = read(write_lesson(tmp_path / "mine", **{"en.md": text, "pictures.yaml": pictures}), monkeypatch)
    assert isinstance(lesson, Lesson), lesson
    assert [step.texts["en"].deeper for step in lesson.steps] == [False, True]


def test_english_fills_the_gaps_of_a_language_of_ones_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "words").mkdir()
    french = tmp_path / "words" / "fr.yaml"
    french.write_text(yaml.safe_dump({"next": "suivant"}), encoding="utf-8")
    words = read_words([FOLDER, tmp_path])
    assert words["fr"] == words["en"] | {"next": "suivant"}
    assert isinstance(read(write_lesson(tmp_path / "mine", **{"fr.md": TEXT}), monkeypatch), Lesson)
    french.write_text("[next", encoding="utf-8")
    found = read_lessons()
    assert isinstance(found["words"], BrokenLesson)
    assert isinstance(found["cascades"], Lesson)


def test_own_lessons_are_listed_unread_and_a_broken_one_leaves_the_others_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_lesson(tmp_path / "good")
    write_lesson(tmp_path / "bad", **{"pictures.yaml": "- kind: nothing\n"})
    (tmp_path / "No Name").mkdir()
    monkeypatch.setenv(LESSONS.name, str(tmp_path))
    shown_lessons.cache_clear()
    found = shown_lessons()
    assert set(found) == {"cascades", "good", "bad", "No Name"}
    assert {name for name in found if isinstance(found[name], BrokenLesson)} == {"bad", "No Name"}
    assert "steps" not in vars(found["cascades"])
    client = TestClient(Starlette(routes=[lesson_route()]))
    told = client.get("/lessons?name=cascades").json()["steps"]
    assert len(told) == len(own().steps)
    for step in told:
        link = parse_link(parse_qsl(step["live"][1:]))
        assert link.tab in ("generate", "compare", "tradeoff", "learn")
        assert not link.problems
    assert client.get("/lessons?name=bad").json()["problem"].startswith("bad/pictures.yaml, step 1: ")
    assert client.get("/lessons?name=../bad").status_code == 404
    shown_lessons.cache_clear()
