"""Lessons: the project's own is whole in both languages; an error in a file is one sentence that says where it is."""

from __future__ import annotations

import json
import re
from pathlib import Path
from urllib.parse import parse_qsl

import pytest
import yaml
from starlette.applications import Starlette
from starlette.testclient import TestClient

from specviz.analysis.recorded_runs import read_recorded_runs
from specviz.app.components.lessons import lesson_route
from specviz.app.link import parse_link
from specviz.environment import LESSONS
from specviz.lessons.lesson import BrokenLesson, Lesson, read_words
from specviz.lessons.pictures import CONTEXT, KINDS, LINE, text_before
from specviz.lessons.shelf import FOLDER, read_lessons, shown_lessons
from tests.support.lessons import PICTURES, TEXT, write_lesson

OWN = read_lessons()
LANGUAGES = ("en", "de")


def own() -> Lesson:
    lesson = OWN.lessons["cascades"]
    assert isinstance(lesson, Lesson), lesson
    return lesson


def read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Lesson | BrokenLesson:
    monkeypatch.setenv(LESSONS.name, str(folder.parent))
    return read_lessons().lessons[folder.name]


def test_the_own_lesson_has_thirteen_steps_of_twenty_minutes_and_deeper_ones_each_with_a_guess_in_both_languages() -> (
    None
):
    steps = own().steps
    assert [step.texts["en"].deeper for step in steps].count(False) == 13
    assert sum(step.minutes for step in steps) == own().cover(OWN.words)["minutes"] == 20
    assert all(bool(step.minutes) != step.texts["en"].deeper for step in steps), (
        "the route has no deeper step"
    )
    for step in steps:
        assert set(step.texts) == set(LANGUAGES)
        for text in step.texts.values():
            assert len(text.choices) >= 2, text.title
            assert all((text.title, text.before, text.question, text.answer, text.notes))
            assert not re.search(r"[{}]", re.sub(r"\{[^{}]*\}", "", text.answer + text.before))
    assert {step.kind for step in steps} == set(KINDS) - {"text"}
    assert OWN.words["de"].keys() == OWN.words["en"].keys()
    assert len(json.dumps(own().told(OWN.words))) < 250_000


def test_the_right_answers_agree_with_the_recordings() -> None:
    """Where a question is about a recorded run, so that a new recording cannot make the lesson wrong."""
    steps = {step.texts["en"].title.split(":")[0]: step for step in own().steps}

    def value(title: str, name: str) -> float:
        return float(steps[title].picture.values[name][1])

    slow, guess, check, coin, rule, good, curve, fails = (
        "A large model writes one token at a time",
        "A small model guesses ahead",
        "The large model checks all guesses in one call",
        "Keep it, or replace it? A coin decides",
        "Chow’s rule asks only how sure the drafter is",
        "What if “good enough” were enough?",
        "Quality against cost",
        "Where it fails",
    )
    assert value(slow, "alone.calls") == value(slow, "alone.tokens")
    assert value(guess, "kept") == value(guess, "drafted")
    assert value(check, "ratio") < 1.5
    assert 0 < value(check, "kept") < value(check, "drafted")
    assert steps[coin].picture.data["token"]["accepted"]
    assert value(rule, "max_q") >= 1 - steps[rule].picture.data["asked"][0]["lenience"]
    assert value(good, "share") < 0.25
    assert value(curve, "saved") < 0.25
    assert value(fails, "sixteen.seconds") > max(value(fails, "alone.seconds"), value(fails, "five.seconds"))
    diff_opt = steps["Diff and OPT look at both models"].picture
    opt = diff_opt.data["asked"][1]["recorded"]
    assert diff_opt.values["max_q"][1] >= diff_opt.values["max_p"][1] - 0.1
    assert opt["score"] < opt["threshold"]
    tokens = steps["Token rules judge each token by itself"].picture.values
    assert tokens["q"][1] < tokens["max_p"][1] - 0.3
    assert tokens["p"][1] >= 0.5 * tokens["max_p"][1]
    expert = steps["The small model may know better"].picture.values
    assert expert["max_q"][1] > expert["max_p"][1]
    beats = steps["Can a cascade beat both of its models?"].picture
    alone = beats.data["models"]
    assert beats.values["best_accuracy"][1] > max(alone.values()) + 0.05
    (third,) = (each for each in beats.data["curves"] if each["method"] == "cascade_tokenV3")
    assert all(point["value"] <= alone["verifier"] for point in third["points"])


STEP = "mine/pictures.yaml, step 1"


@pytest.mark.parametrize(
    ("files", "where", "says"),
    [
        ({"pictures.yaml": PICTURES.replace("coin", "cion")}, STEP, "“cion” is not a kind of picture; known: text, race"),
        ({"pictures.yaml": PICTURES.replace("lossless", "../../index")}, STEP, "no recorded run of that name"),
        ({"pictures.yaml": PICTURES.replace("39", "soon")}, STEP, "“token” must be a whole number"),
        ({"pictures.yaml": PICTURES.replace("  token: 39\n", "")}, STEP, "“token” is missing"),
        ({"pictures.yaml": PICTURES + "  colour: red\n"}, STEP, "“colour” is not a field of coin; known: run, token"),
        ({"pictures.yaml": "- {kind: round, run: lossless, round: 0, stages: [[], decided]}\n"}, STEP, "is not a stage"),
        ({"pictures.yaml": "kind: coin\n"}, "mine/pictures.yaml", "there must be a list"),
        ({"pictures.yaml": "- kind: !!python/object/apply:os.system [x]\n"}, "mine/pictures.yaml, line 1", "not plain YAML"),
        ({"pictures.yaml": 2 * PICTURES}, "mine/pictures.yaml", "there are 2 pictures for 1 steps"),
        ({"en.md": TEXT.replace("{q}", "{quality}")}, "mine/en.md, line 5", "there is no {quality} in this step; there is {acceptance_rate}"),
        ({"en.md": TEXT.replace("[ ]", "[x]")}, "mine/en.md, line 5", "one right choice"),
        ({"en.md": TEXT.replace("Will it stay?", "").replace("The drafter gave it {q}.", "")}, "mine/en.md, line 5", "needs a question"),
        ({"en.md": TEXT.replace("## ", "### ")}, "mine/en.md", "the first not deeper"),
        ({"en.md": ""}, "mine", "there is no text, such as en.md"),
        ({"de.md": TEXT.replace("- [x] It goes\n", "- [x] Weg\n- [ ] Halb\n")}, "mine/de.md, step 1", "differ from mine/en.md"),
        ({"fr.md": TEXT}, "mine/fr.md", "there are no words for buttons in words/fr.yaml"),
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
    found = read_lessons().lessons
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
    found = shown_lessons().lessons
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


# ---- recorded runs ---------------------------------------------------------------------------------------


RUNS = read_recorded_runs()


def test_the_recordings_show_what_the_steps_say() -> None:
    """The most lenient text is the drafter's own, and two draft lengths have one text (draft-length invariance)."""
    runs = [RUNS.load(key) for key in RUNS.lessons if key.startswith("lesson-lenience")]
    assert runs[-1].lenience == 1
    assert all(token.accepted for token in runs[-1].tokens)
    five, sixteen = (RUNS.load(f"lesson-story-{name}") for name in ("five", "sixteen"))
    assert five.token_ids == sixteen.token_ids


def test_the_text_before_a_token_is_the_longest_end_that_fits() -> None:
    run = RUNS.load("lesson-rules")
    for count in range(len(run.tokens) + 1):
        whole = "".join(token.text for token in run.tokens[:count])
        shown = text_before(run, count)
        end = shown["before"]
        assert whole.endswith(end)
        assert shown["cut"] == (end != whole)
        assert len(end) + (LINE - 1) * end.count("\n") <= CONTEXT
        if shown["cut"]:
            more = whole[-len(end) - 1 :]
            assert len(more) + (LINE - 1) * more.count("\n") > CONTEXT
