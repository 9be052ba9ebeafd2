"""A text ends before its first stop, wherever a token, a round or a piece of a stream ends."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from specviz.app.openai_answer import Text, joined
from specviz.schema.trace import parse_trace
from tests.support.traces import make_trace

TEXTS = st.text(alphabet="ab", max_size=4)
STOPS = st.lists(st.text(alphabet="ab", min_size=1, max_size=5), max_size=4)


@settings(deadline=None, derandomize=True)
@given(st.lists(TEXTS, min_size=1, max_size=20), STOPS, st.lists(st.integers(1, 4), min_size=20, max_size=20))
def test_pieces_join_to_what_comes_before_the_first_stop(
    tokens: list[str], stops: list[str], steps: list[int]
) -> None:
    """Nothing of a stop is ever sent; the number of tokens and the reason do not depend on the pieces."""
    whole = parse_trace(make_trace(tokens, eos=None, stop_reason="length").lines)
    ends = [len("".join(tokens[: n + 1])) for n in range(len(tokens))]
    full = "".join(tokens)
    # The first token at which a stop is complete, and the first stop in the text up to there.
    until = next((end for end in ends if any(stop in full[:end] for stop in stops)), None)
    expected = full if until is None else full[: min(at for s in stops if (at := full[:until].find(s)) >= 0)]

    text, growing, pieces = Text(tuple(stops)), parse_trace(whole.lines()), []
    growing.rounds = []
    for step in steps:
        growing.rounds += whole.rounds[len(growing.rounds) :][:step]
        pieces.append(text.take(growing))
        assert expected.startswith("".join(piece.text for piece in pieces))
        if text.is_stopped:
            break
    else:
        growing.rounds = whole.rounds
        pieces.append(text.take(growing, ends=True))
    found = joined(pieces)
    assert found.text == expected
    assert found.finish_reason == ("length" if until is None else "stop")
    assert text.read == (len(tokens) if until is None else ends.index(until) + 1)
    assert [offset for offset, _ in found.tokens] == sorted(offset for offset, _ in found.tokens)
    assert "".join(token.text for _, token in found.tokens).startswith(expected)
