"""Traces: a saved run is loaded as it was, and a damaged file is refused."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specviz.errors import TraceError
from specviz.schema.settings import SETTINGS, Request
from specviz.schema.trace import (
    Alternative,
    Draft,
    Likely,
    Proposal,
    Round,
    RuleTest,
    Run,
    Token,
    Top,
    WhatIf,
    parse_trace,
)


def token(**changes) -> Token:
    values = {
        "id": 5, "text": " a", "label": " a", "position": 3, "round": 0, "accepted": True, "special": False,
        "draft": None, "q": 0.5, "p": 0.25, "pi": 0.25, "acceptance": 0.5, "coin": 0.1,
        "rule": RuleTest(0.25, 0.5, False), "top": None, "what_if": WhatIf([0.5, 1.0], [[0.1, 0.4], []], None),
    }  # fmt: skip
    return Token(**values | changes)


def run() -> Run:
    likely = [Likely(5, " a", 0.5), Likely(6, "</script>${x}{{y}}\u2028", 0.25)]
    resampled = token(
        accepted=False,
        position=4,
        text="",
        label="\ufffd",
        draft=Draft(9, "\n", 0.9, 0.1, 0.1),
        top=Top(likely, None, likely),
        what_if=WhatIf([0.1, 1.0], [[0.75], []], [0.25, 0.625]),
    )
    proposals = [Proposal(5, " a", 0.5), Proposal(9, "\n", 0.9), Proposal(7, "b", 1.0)]
    last = token(position=5, round=1, special=True)
    rounds = [
        Round(0, 4, proposals, 2, 1, 0.5, 0.2, 0.2, [token(), resampled], kept_by_block=2),
        Round(1, 1, proposals[:1], 1, 1, 0.25, 0.1, 0.1, [last]),
    ]
    return Run(
        pair="p", drafter="d", verifier="v", device="cpu", dtype="float32", method="cascade_tokenV3", lenience=0.5,
        draft_length=3, temperature=1.0, top_k=0, top_p=1.0, seed=0, max_new_tokens=3, forbidden_tokens=[], echo=False,
        inspect=2, prompt="hé\n", prompt_ids=[1, 2, 3],
        alternatives=[Alternative("cascade_tokenV3", 0.5), Alternative("drafter_only", 0.0)], rounds=rounds, stop_reason="length", seconds=1.0,
        prefill_seconds=0.25, verifier_calls=2, drafter_calls=4,
    )  # fmt: skip


def test_save_and_load_round_trip(tmp_path: Path) -> None:
    original = run()
    original.save(tmp_path / "trace.jsonl")
    loaded = Run.load(tmp_path / "trace.jsonl")
    assert loaded == original
    assert [p.name for p in tmp_path.iterdir()] == ["trace.jsonl"]


def older(version: int, **values) -> list[str]:
    """The trace as it was written before version 4: its rounds did not tell K, since they had drafted all K proposals."""
    header, *rounds, end = change(0, version=version, **values)
    old = [
        {key: value for key, value in json.loads(each).items() if key != "draft_length"} for each in rounds
    ]
    return [header, *map(json.dumps, old), end]


@pytest.mark.parametrize("version", [2, 3])
def test_older_versions_are_read_and_written_as_version_4(version: int) -> None:
    found = parse_trace(older(version))
    assert [r.draft_length for r in found.rounds] == [len(r.proposals) for r in found.rounds]
    rounds = [
        replace(r, draft_length=own.draft_length) for r, own in zip(found.rounds, run().rounds, strict=True)
    ]
    assert replace(found, rounds=rounds) == run()
    assert json.loads(next(found.lines()))["version"] == 4
    assert parse_trace(found.lines()) == found


def test_each_version_requires_its_fields() -> None:
    """From version 3 on K may be chosen round by round; from version 4 on a round has its draft length."""
    assert parse_trace(older(3, draft_length=None)).draft_length is None
    for wrong in (older(2, draft_length=None), older(4)):
        with pytest.raises(TraceError, match="'draft_length'"):
            parse_trace(wrong)


def test_an_older_trace_has_the_default_of_a_newer_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SETTINGS, "echo", replace(SETTINGS["echo"], added=True))
    assert parse_trace(without("echo")) == run()
    assert parse_trace(without("repetition_penalty")).repetition_penalty == 1
    with pytest.raises(TraceError, match="'top_k'"):
        parse_trace(without("top_k"))


def test_a_run_has_the_settings_of_its_request() -> None:
    """Every setting, with numbers of the trace's types."""
    request = Request(prompt="hé", temperature=1, top_k=3, top_p=1, seed=2, forbidden_tokens=("a",))
    names = ("pair", "drafter", "verifier", "device", "dtype", "prompt", "prompt_ids", "alternatives")
    fields = {name: getattr(run(), name) for name in names}
    made = Run.for_request(request, forbidden_tokens=[7], repetition_penalty=2, **fields)
    own = {"draft_length": None, "forbidden_tokens": [7], "repetition_penalty": 2}
    asked = {name: getattr(request, name) for name in SETTINGS} | own
    assert {name: getattr(made, name) for name in SETTINGS} == asked
    floats = ("lenience", "temperature", "top_p", "repetition_penalty")
    assert all(type(getattr(made, name)) is float for name in floats)


def test_the_end_of_a_trace_has_its_metrics_and_an_older_one_gets_the_same() -> None:
    *head, end = lines()
    assert json.loads(end)["metrics"] == asdict(run().metrics())
    older = json.loads(end) | {"metrics": None}
    assert parse_trace([*head, json.dumps(older)]).metrics() == run().metrics()


def lines() -> list[str]:
    return list(run().lines())


def change(line: int, **values) -> list[str]:
    changed = lines()
    changed[line] = json.dumps(json.loads(changed[line]) | values)
    return changed


def without(name: str) -> list[str]:
    header = json.loads(lines()[0])
    del header[name]
    return [json.dumps(header), *lines()[1:]]


def what_if(**values) -> list[str]:
    tokens = json.loads(lines()[1])["tokens"]
    tokens[0]["what_if"] |= values
    return change(1, tokens=tokens)


@pytest.mark.parametrize(
    ("damaged", "words"),
    [
        ([], "not a SpecViz trace"),
        (["[" * 100_000], "Line 1"),
        (["[1, 2]"], "Line 1"),
        (['{"type": "run", "schema": "other"}'], "not a SpecViz trace"),
        (change(0, prompt="a\ud800"), "'prompt'"),
        (
            change(0, continues={"prompt": "p", "text": "", "tokens": 9, "chosen": None, "chosen_text": ""}),
            "fit together",
        ),
        (change(0, version=99), "99"),
        (without("draft_length"), "'draft_length'"),
        (lines()[:-1], "truncated"),
        ([*lines()[:-1], lines()[-1][:20]], "Line 4"),
        (change(0, prompt_ids=["1"]), "Line 1 .* 'prompt_ids'"),
        (change(1, tokens=[{}]), "Line 2 .* 'id'"),
        (change(2, examined=float("nan")), "'examined'"),
        (what_if(acceptance=[0.5]), "fit together"),
        (what_if(flips=[[None], []]), "'flips'"),
        (change(3, stop_reason="tired"), "'tired'"),
        ([lines()[0], lines()[3], *lines()[1:]], "may only be rounds"),
    ],
)
def test_a_foreign_truncated_or_damaged_trace_is_refused(damaged: list[str], words: str) -> None:
    with pytest.raises(TraceError, match=words):
        parse_trace(damaged)


def test_a_trace_too_long_to_be_drawn_is_refused() -> None:
    assert parse_trace(lines(), most=9).token_ids == run().token_ids
    with pytest.raises(TraceError, match="too long"):
        parse_trace(lines(), most=8)


def test_every_truncation_is_noticed(tmp_path: Path) -> None:
    whole = "".join(lines())
    for length in range(0, len(whole) - 1, 97):
        (tmp_path / "t").write_text(whole[:length], encoding="utf-8")
        with pytest.raises(TraceError):
            Run.load(tmp_path / "t")


@settings(max_examples=10, deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
        lambda x: st.lists(x) | st.dictionaries(st.text(), x),
    )
)
def test_any_value_in_a_round_is_read_or_refused(value: object) -> None:
    for name in ("tokens", "proposals", "index", "seconds", "draft_length"):
        try:
            parse_trace(change(1, **{name: value}))
        except TraceError:
            continue


def test_a_file_that_cannot_be_read_or_written_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00\x01")
    (target := tmp_path / "target").mkdir()
    for name in ("missing", "binary"):
        with pytest.raises(TraceError):
            Run.load(tmp_path / name)
    with pytest.raises(TraceError):
        run().save(target)
    assert sorted(tmp_path.iterdir()) == [tmp_path / "binary", target]
