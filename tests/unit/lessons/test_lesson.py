"""Lessons: the project's own is whole in both languages; what is wrong with a file is one sentence with its name and line."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml
from starlette.applications import Starlette
from starlette.testclient import TestClient

from specviz.app.components import lessons as component
from specviz.errors import LessonError
from specviz.lessons import lesson as lesson_module
from specviz.lessons import pictures
from specviz.lessons.lesson import BrokenLesson, Lesson, read_words
from specviz.lessons.pictures import FIGURES, KINDS
from specviz.lessons.places import ROUNDS, TOKENS
from specviz.lessons.shelf import FOLDER, VARIABLE, Lessons, read_lessons
from tests.support.lessons import HEAD, STEP, TEXT, read, write_lesson

OWN = read_lessons()
LANGUAGES = ("en", "de")


def own() -> Lesson:
    lesson = OWN.lessons["cascades"]
    assert isinstance(lesson, Lesson), lesson
    return lesson


def test_the_own_lesson_has_twelve_steps_each_with_a_guess_in_both_languages() -> None:
    lesson = own()
    assert lesson.main == 12
    assert set(lesson.texts) == set(LANGUAGES)
    assert set(OWN.lessons) == {"cascades"}
    for step in lesson.steps:
        assert step.right in step.choices, step.name
        assert len(step.choices) >= 2, step.name
        for code in LANGUAGES:
            assert {"title", "before", "question", "choices", "answer", "notes"} <= set(step.texts[code]), (
                step.name,
                code,
            )
    assert {step.kind for step in lesson.steps} == set(KINDS) - {"text"}


def test_right_answers_are_not_all_at_one_place() -> None:
    at = [step.choices.index(step.right) for step in own().steps]
    assert max(at.count(place) for place in set(at)) < 0.75 * len(at)


def test_what_the_tour_taught_is_still_taught() -> None:
    """Its nine questions are the deeper steps; each has a control to move."""
    deeper = [step for step in own().steps if step.deeper]
    assert len(deeper) == 9
    assert {step.kind for step in deeper} == {"distributions", "block"}
    taught = {
        (step.picture.data["states"][""]["method"], step.picture.data["control"])
        for step in deeper
        if step.kind == "distributions"
    }
    assert {
        ("speed", "lenience"),
        ("cascade_chow", "lenience"),
        ("cascade_chow", "method"),
        ("cascade_opt", "lenience"),
    } <= taught
    assert {
        ("cascade_tokenV1", "method"),
        ("cascade_tokenV3", "lenience"),
        ("cascade_opt", "method"),
    } <= taught


def test_no_measured_number_is_typed_into_a_text() -> None:
    """What a text says in digits is a definition or a name; all else are placeholders."""
    names = r"\{[^{}]*\}|Token V[123]|\bV[123]\b|[qp]₁|95[ -]%|1[.,]000|TV\(|\(19?\d\d\)|α = [01]\b|100 %|Chow \(1970\)|0[.,]7\^K|0[.,]7\)"
    for step in own().steps:
        for code in LANGUAGES:
            texts = step.texts[code]
            told = " ".join(
                [
                    texts["title"],
                    texts["before"],
                    texts["question"],
                    texts["answer"],
                    *texts["choices"].values(),
                ]
            )
            left = re.findall(r"\d+(?:[.,]\d+)?", re.sub(names, " ", told))
            assert set(left) <= {"0", "1", "3", "4"}, (step.name, code, left)


def test_a_lesson_is_json_and_small() -> None:
    text = json.dumps(own().told(OWN.words))
    assert len(text) < 250_000


def test_every_language_has_all_words_of_buttons_and_pictures() -> None:
    assert set(OWN.words) == set(LANGUAGES)
    assert OWN.words["de"].keys() == OWN.words["en"].keys()


def test_the_small_lesson_is_sound(tmp_path: Path) -> None:
    lesson = read(write_lesson(tmp_path / "mine"))
    assert isinstance(lesson, Lesson), lesson
    assert lesson.steps[0].texts["en"]["answer"].startswith("It went")


@pytest.mark.parametrize(
    ("files", "where", "says"),
    [
        ({"01-step.yaml": STEP.replace("coin", "cion")}, "01-step.yaml, line 1", "'cion' is not a kind of step; there are text, race"),
        ({"01-step.yaml": STEP.replace("lossless", "missing")}, "01-step.yaml, line 2", "the trace 'missing' cannot be shown"),
        ({"01-step.yaml": STEP.replace("lossless", "../../index")}, "01-step.yaml, line 2", "cannot be shown"),
        ({"01-step.yaml": STEP.replace("first rejected", "token 7")}, "01-step.yaml, line 3", "is not a rule for a token"),
        ({"01-step.yaml": STEP.replace("place: first rejected\n", "")}, "01-step.yaml, line 1", "“place” is missing"),
        ({"01-step.yaml": STEP + "colour: red\n"}, "01-step.yaml, line 6", "'colour' is not known here"),
        ({"01-step.yaml": STEP.replace("verdict", "maybe")}, "01-step.yaml, line 5", "'maybe' is not a choice or an outcome"),
        ({"01-step.yaml": STEP.replace("[kept, rejected]", "[kept, lost]")}, "01-step.yaml, line 4", "the outcome 'verdict' is 'rejected' here"),
        ({"01-step.yaml": STEP.replace("right: verdict\n", "")}, "01-step.yaml, line 4", "“right” must say"),
        ({"01-step.yaml": STEP + "kind: coin\n"}, "01-step.yaml, line 6", "'kind' is given twice"),
        ({"01-step.yaml": "kind: [coin\n"}, "01-step.yaml, line 2", "not plain YAML"),
        ({"01-step.yaml": "- coin\n"}, "01-step.yaml, line 1", "must begin with a name and a colon"),
        ({"01-step.yaml": STEP.replace("coin", "&k coin") + "deeper: *k\n"}, "01-step.yaml, line 6", "references"),
        ({"01-step.yaml": STEP.replace("lossless", "!!python/object/apply:os.system [x]")}, "01-step.yaml, line 2", "tags"),
        ({"en/01-step.yaml": TEXT.replace("{q}", "{quality}")}, "en/01-step.yaml, line 2", "there is no {quality} here; there is {acceptance_rate}"),
        ({"en/01-step.yaml": TEXT.replace("{q}", "{q.__class__}")}, "en/01-step.yaml, line 2", "there is no {q.__class__}"),
        ({"en/01-step.yaml": TEXT.replace("{q}", "{q")}, "en/01-step.yaml, line 2", "a brace stands alone"),
        ({"en/01-step.yaml": TEXT.replace("  rejected: It goes\n", "")}, "en/01-step.yaml, line 4", "“rejected” is missing"),
        ({"en/01-step.yaml": TEXT.replace("It stays", "x\u202ey", 1)}, "en/01-step.yaml, line 5", "control character"),
        ({"en/01-step.yaml": TEXT.replace("It stays", '"x\\0y"', 1)}, "en/01-step.yaml, line 5", "control character"),
        ({"en/01-step.yaml": TEXT.replace("Say something.", "x" * 5000)}, "en/01-step.yaml, line 10", "longer than 4800 characters"),
        ({"en/01-step.yaml": ""}, "en/01-step.yaml, line 1", "this file is missing"),
        ({"de/lesson.yaml": HEAD}, "de/01-step.yaml, line 1", "this file is missing"),
        ({"fr/lesson.yaml": HEAD, "fr/01-step.yaml": TEXT}, "fr/lesson.yaml, line 1", "there are no words for buttons and pictures in 'fr'"),
        ({"en/lesson.yaml": HEAD.replace("about", "abuot")}, "en/lesson.yaml, line 2", "'abuot' is not known here"),
        ({"en/lesson.yaml": ""}, "mine", "there is no language yet"),
        ({"step.yaml": STEP}, "step.yaml", "is named like 01-a-name.yaml"),
        ({"00-text.yaml": "kind: text\ndeeper: true\n", "en/00-text.yaml": "title: A text\n"}, "00-text.yaml", "cannot lie deeper"),
    ],
)  # fmt: skip
def test_an_error_is_one_sentence_with_file_and_line(
    tmp_path: Path, files: dict[str, str], where: str, says: str
) -> None:
    broken = read(write_lesson(tmp_path / "mine", **files))
    assert isinstance(broken, BrokenLesson)
    assert broken.name == "mine"
    assert where in broken.problem
    assert says in broken.problem
    assert str(tmp_path) not in broken.problem
    assert "Traceback" not in broken.problem


def test_what_is_not_utf8_is_told_with_its_line(tmp_path: Path) -> None:
    folder = write_lesson(tmp_path / "mine")
    (folder / "en/01-step.yaml").write_bytes(b"title: x\nbefore: \xff\n")
    broken = read(folder)
    assert isinstance(broken, BrokenLesson)
    assert "en/01-step.yaml, line 2: this is not UTF-8" in broken.problem


def test_a_lesson_may_bring_its_own_trace(tmp_path: Path) -> None:
    folder = write_lesson(tmp_path / "mine", **{"01-step.yaml": STEP.replace("lossless", "my-run")})
    assert isinstance(read(folder), BrokenLesson)
    (folder / "runs").mkdir()
    trace = (FOLDER.parent / "runs" / "greedy.jsonl").read_text(encoding="utf-8")
    (folder / "runs" / "my-run.jsonl").write_text(trace, encoding="utf-8")
    assert isinstance(read(folder), Lesson)
    (folder / "runs" / "my-run.jsonl").write_text(trace[:5000], encoding="utf-8")
    broken = read(folder)
    assert isinstance(broken, BrokenLesson)
    assert "the trace 'my-run' cannot be shown" in broken.problem


def test_a_broken_lesson_leaves_the_others_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_lesson(tmp_path / "good")
    write_lesson(tmp_path / "bad", **{"01-step.yaml": "kind: nothing\n"})
    (tmp_path / "No Name").mkdir()
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    found = read_lessons().lessons
    assert isinstance(found["cascades"], Lesson)
    assert isinstance(found["good"], Lesson)
    assert isinstance(found["bad"], BrokenLesson)
    assert isinstance(found["unnamed"], BrokenLesson)
    monkeypatch.setenv(VARIABLE, str(tmp_path / "nowhere"))
    found = read_lessons().lessons
    assert isinstance(found["cascades"], Lesson)
    assert [each.problem for each in found.values() if isinstance(each, BrokenLesson)] == [
        f"The folder that {VARIABLE} names is not there."
    ]


def test_a_language_of_ones_own_needs_all_words_and_their_placeholders(tmp_path: Path) -> None:
    english = yaml.safe_load((FOLDER / "words" / "en.yaml").read_text(encoding="utf-8"))
    (tmp_path / "words").mkdir()
    french = tmp_path / "words" / "fr.yaml"
    french.write_text(yaml.safe_dump(english, allow_unicode=True), encoding="utf-8")
    words, problems = read_words([FOLDER, tmp_path])
    assert words["fr"] == words["en"]
    assert not problems
    for change in ({"step": "Pas"}, {"step": None}):
        changed = {name: text for name, text in (english | change).items() if text}
        french.write_text(yaml.safe_dump(changed, allow_unicode=True), encoding="utf-8")
        words, problems = read_words([FOLDER, tmp_path])
        assert "fr" not in words
        assert isinstance(problems["fr"], LessonError)
        assert "words/fr.yaml, line" in str(problems["fr"])


def test_the_document_names_every_kind_field_outcome_and_rule() -> None:
    document = (FOLDER.parents[1] / "docs" / "lessons.md").read_text(encoding="utf-8")
    for name, kind in KINDS.items():
        row = next(line for line in document.splitlines() if line.startswith(f"| `{name}` |"))
        for each in (*kind.required, *kind.optional):
            assert f"`{each}" in row, (name, each)
    for each in (*TOKENS, *ROUNDS, *FIGURES, *pictures._RULE_PLACES):
        assert f"`{each}`" in document, each
    for step in own().steps:
        row = next(line for line in document.splitlines() if line.startswith(f"| `{step.kind}` |"))
        assert all(f"`{each}`" in row for each in step.picture.outcomes), step.name


def test_an_own_lesson_is_listed_before_its_steps_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """And what is wrong with a step then is told when it is opened."""
    monkeypatch.setattr(lesson_module, "_step", lambda *_: pytest.fail("a step was read"))
    lesson = read_lessons().lessons["cascades"]
    assert isinstance(lesson, Lesson)
    assert (lesson.main, len(lesson.deeper)) == (own().main, len(own().steps))

    def broken(*_: object) -> None:
        raise LessonError("cascades/01.yaml, line 1: gone.")

    monkeypatch.setattr(lesson_module, "_step", broken)
    monkeypatch.setattr(component, "shown_lessons", lambda: Lessons({"cascades": lesson}, {}))
    answer = TestClient(Starlette(routes=[component.lesson_route()])).get("/lessons?name=cascades")
    assert answer.json() == {"problem": "cascades/01.yaml, line 1: gone."}
