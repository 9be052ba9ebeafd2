"""What runs come to, side by side: parting, agreement, speed-up and the table, on runs made by hand."""

from __future__ import annotations

from typing import Any

import pytest

from specviz.analysis.metrics import explain, first_divergence, headline, table
from specviz.schema.trace import Run, parse_trace
from tests.support.traces import end_entry, line, round_entry, run_entry, token_entry

IDS = {"A": 1, " small": 2, " bow": 3, " was": 4, " is": 5, " seen": 6}


def kept(text: str) -> dict[str, Any]:
    """A token that was drafted and accepted."""
    return token_entry(text, id=IDS[text])


def redone(text: str, draft: str) -> dict[str, Any]:
    """A token in place of a rejected draft."""
    rejected = {"id": IDS[draft], "text": draft, "q": 0.5, "p": 0.1, "pi": 0.1}
    return token_entry(text, id=IDS[text], accepted=False, draft=rejected, acceptance=0.2, coin=0.6)


def written(text: str) -> dict[str, Any]:
    """A token of the verifier alone."""
    return token_entry(text, id=IDS[text], accepted=False, acceptance=None, coin=None)


def a_run(
    *tokens: dict[str, Any],
    method: str = "cascade_chow",
    stop: str = "length",
    seconds: float = 1.0,
    **settings: Any,
) -> Run:
    """One run of one round."""
    examined = sum(token["acceptance"] is not None for token in tokens)
    ending = end_entry(1, method, stop) | {"seconds": seconds}
    rounds = [round_entry(list(tokens), examined=examined)] if tokens else []
    return parse_trace(line(entry) for entry in [run_entry(method, **settings), *rounds, ending])


def words(parts: list[Any]) -> str:
    """A sentence with its tokens in quotes."""
    return "".join(part if isinstance(part, str) else f"‘{part['label']}’" for part in parts)


CHOW, STRICT = "Chow (α\u00a0=\u00a00.3)", "Chow (α\u00a0=\u00a00)"


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        (
            a_run(kept("A"), kept(" was")),
            a_run(kept("A"), redone(" is", " was"), lenience=0.0),
            f"{CHOW} kept the draft ‘ was’; {STRICT} rejected it and the verifier put ‘ is’.",
        ),
        (
            a_run(kept("A"), redone(" is", " was")),
            a_run(kept("A"), redone(" seen", " was"), lenience=0.0),
            "Both rejected the draft ‘ was’, and their rules left different replacements: "
            f"{CHOW} took ‘ is’, {STRICT} took ‘ seen’.",
        ),
        (
            a_run(kept("A"), kept(" was")),
            a_run(kept("A"), stop="eos", lenience=0.0),
            f"{CHOW} kept the draft ‘ was’; {STRICT} had ended.",
        ),
    ],
    ids=["kept or rejected", "two replacements", "ended"],
)
def test_two_runs_part_at_the_first_token_that_differs_and_it_is_said_why(
    first: Run, second: Run, said: str
) -> None:
    divergence = first_divergence(first, second)
    assert divergence is not None
    assert divergence.index == 1
    assert words(explain(divergence, first, second)) == said


def test_runs_that_agree_do_not_part_nor_does_one_that_was_stopped() -> None:
    whole = a_run(kept("A"), redone(" is", " was"), kept(" seen"))
    assert first_divergence(whole, a_run(kept("A"), kept(" is"), kept(" seen"))) is None
    part = a_run(kept("A"), stop="cancelled")
    assert first_divergence(whole, part) is None
    assert first_divergence(part, whole) is None


def test_the_table_tells_each_run_and_where_it_differs() -> None:
    own = a_run(written("A"), written(" was"), method="verifier_only", temperature=0.0)
    same, other, cut = (
        a_run(kept("A"), *more, stop=stop, temperature=0.0)
        for more, stop in (
            ([redone(" was", " is")], "length"),
            ([kept(" seen")], "length"),
            ([], "cancelled"),
        )
    )
    rows = table([own, same, other, cut], [-0.5, None, None, None])
    assert [row["quality"] for row in rows] == [-0.5, None, None, None]
    assert [row["acceptance_rate"] for row in rows] == [None, 0.5, 1.0, 1.0]
    assert [row["parts_at"] for row in rows] == [None, None, 1, None]
    assert all(row["shares_coins"] for row in rows)


def test_above_temperature_zero_the_verifier_alone_has_other_coins() -> None:
    """A text that is the same by chance needs no word about coins."""
    same, other = (a_run(written(one), method="verifier_only", temperature=1.0) for one in ("A", " was"))
    rows = table([a_run(kept("A"), temperature=1.0), same, other])
    assert [row["shares_coins"] for row in rows] == [True, True, False]


LOSSLESS = {"method": "speed", "lenience": 0.0}


@pytest.mark.parametrize(
    ("runs", "said"),
    [
        (
            [
                a_run(kept("A"), redone(" small", " bow"), temperature=0.0, **LOSSLESS),
                a_run(kept("A"), kept(" bow"), temperature=0.0),
                a_run(written("A"), written(" small"), temperature=0.0, method="verifier_only"),
            ],
            "Lossless and Verifier only write the same text, in 1 and 1 calls of the verifier. "
            "Chow is the same until token 2; then it keeps ‘ bow’, not ‘ small’. ",
        ),
        (
            [a_run(kept("A"), **LOSSLESS), a_run(written(" was"), method="verifier_only")],
            "Lossless has the distribution of Verifier only; it has the same words only at temperature 0. ",
        ),
        (
            [
                a_run(kept("A"), kept(" bow"), kept(" is"), lenience=0.9),
                a_run(redone(" was", "A"), lenience=0.1),
                a_run(kept("A"), redone(" small", " bow"), lenience=0.3),
                a_run(written(" was"), method="verifier_only"),
            ],
            "Chow (α 0.1) differs from Chow (α 0.9) at the first token: it puts ‘ was’, not ‘A’. "
            "Chow (α 0.3) is the same until token 2. "
            "Verifier only uses the coins otherwise, so its words differ whatever the rule.",
        ),
        (
            [a_run(kept("A"), method=method) for method in ("verifier_only", "sampler_match")],
            "Both panes write the same text, in 1 and 1 calls of the verifier. ",
        ),
        (
            [
                a_run(kept("A")),
                *(a_run(kept(" was"), method=method) for method in ("verifier_only", "gumbel_coupling")),
            ],
            "Verifier only and Gumbel coupling use the coins otherwise, so their words differ whatever the rule.",
        ),
    ],
    ids=["lossless", "distribution", "each is named", "the same text", "other noise"],
)
def test_the_headline_says_what_the_panes_show(runs: list[Run], said: str) -> None:
    assert words(headline(runs)) == said
