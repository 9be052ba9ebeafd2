"""Items with checkable answers: what counts as right, the project's own, and files of others."""

from __future__ import annotations

import random
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from specviz.analysis.sweep.items import ARITHMETIC, Item, Items, load_items
from specviz.errors import RequestError
from specviz.tools.distill.prompts import held_out_prompts, made_prompts


def score(kind: str, answers: tuple[str, ...], text: str, **more: Any) -> float | None:
    return Items("one", (Item("key", kind, "prompt", answers, **more),)).score(0, text)


def test_an_answer_to_two_questions_is_right_only_if_both_parts_are() -> None:
    for text, right in (("47 + 38 = 85\nThe capital is Rome.", 1), ("Rome. It is 125.", 0), ("850, Rome", 0)):
        assert score("mixed", ("85",), text, also=("Rome", "Roma")) == right


@pytest.mark.parametrize(
    ("answer", "text", "right"),
    [
        ("7", "The answer is: 12, no, 7!", True),
        ("7", "17", False),
        ("7", "-7", False),
        ("7", "٧", True),
        ("1000", "1,000", True),
        ("-3", "minus 3", True),
        ("3", "10 minus 3", True),
        ("7", "9" * 5000, False),
    ],
)
def test_in_arithmetic_the_last_number_decides(answer: str, text: str, right: bool) -> None:
    """The last number of the text is the answer given: signs, commas and full stops are read, digits never split."""
    assert score(ARITHMETIC, (answer,), text) == float(right)


@pytest.mark.parametrize(
    ("answers", "text", "right"),
    [
        (("Paris",), "The capital of France is Paris.", True),
        (("Paris",), "Parisians live there", False),
        (("United States", "USA"), "in the united\nstates of America", True),
        (("H2O",), "It is H₂O.", True),
        (("São Paulo",), "Sa\u0303o Paulo", True),
        (("Paris",), "\ud800 Paris", True),
    ],
)
def test_elsewhere_an_answer_must_stand_in_the_text_as_whole_words(
    answers: tuple[str, ...], text: str, right: bool
) -> None:
    """An answer counts as whole words, whatever its case, its form in Unicode and the punctuation around it."""
    assert score("factual", answers, text) == float(right)
    assert score("factual", (), text) is None


def test_the_built_in_items_are_sound() -> None:
    """Enough of every kind, all different; repeating the question is never right, each of its answers by itself is."""
    items = load_items()
    first = Counter(item.kind for item in load_items(limit=30).items)
    assert first == {"factual": 10, ARITHMETIC: 10, "commonsense": 10}, "few items cover all kinds evenly"
    assert len({item.prompt for item in items.items}) == len(items.items) >= 150
    for number, item in enumerate(items.items):
        assert item.answers and not item.raw  # noqa: PT018
        assert items.score(number, item.prompt) == 0, item.key
        assert all(items.score(number, f"It is {answer}.") == 1 for answer in item.answers), item.key


def test_the_drafter_was_not_trained_on_a_question() -> None:
    """No question is among the prompts held out, nor among those that a drafter's texts are written to."""
    known = held_out_prompts() + list(islice(made_prompts(random.Random(5)), 3_000))
    for item in load_items().items:
        assert not any(prompt.lower() in item.prompt.lower() for prompt in known), item.key


def test_a_file_of_ones_own_is_read_in_full(tmp_path: Path) -> None:
    """All fields arrive, what is left out has its default, kinds are taken in turn, empty lines are passed over."""
    file = tmp_path / "mine.jsonl"
    lines = [
        '\ufeff{"prompt": "How are you?"}',
        '{"prompt": "Two\u2028lines", "answers": ["a", "b"]}',
        "",
        '{"prompt": "1 + 1 =", "answers": ["2"], "kind": "arithmetic", "raw": true, "key": "sum"}\r',
        "",
    ]
    file.write_text("\n".join(lines), encoding="utf-8", newline="")
    items = load_items(str(file))
    assert items.name == "mine.jsonl"
    assert items.items == (
        Item("line-1", "text", "How are you?"),
        Item("sum", ARITHMETIC, "1 + 1 =", ("2",), raw=True),
        Item("line-2", "text", "Two\u2028lines", ("a", "b")),
    )


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "is empty"),
        (b"\xff\xfe\x00", "cannot be read as UTF-8"),
        (b'{"prompt": "secret"}\n{"prompt": ', "Line 2 .* is no JSON object"),
        (b"[" * 100_000, "Line 1 .* is no JSON object"),
        (b'{"prompt": "secret", "answer": ["7"]}', "key, kind, prompt, answers"),
        (b'{"prompt": "secret", "raw": "yes"}', '"raw" is'),
        (b'{"prompt": "secret", "answers": ["?!"]}', "text with a word in it"),
        (b'{"prompt": "secret", "answers": ["seven"], "kind": "arithmetic"}', "must be a number"),
    ],
)
def test_a_bad_file_is_refused_with_a_sentence(content: bytes, sentence: str, tmp_path: Path) -> None:
    """What is wrong is said in a sentence, without the file's path or its text."""
    file = tmp_path / "secret.jsonl"
    file.write_bytes(content)
    with pytest.raises(RequestError, match=sentence) as caught:
        load_items(str(file))
    assert "secret" not in str(caught.value)
    with pytest.raises(RequestError, match="give the path of one"):
        load_items(str(tmp_path))
