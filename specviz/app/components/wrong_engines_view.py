"""Six wrong engines: the probabilities with which each writes six words, beside the right ones. `static/wrong_engines/` draws them."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from specviz.analysis.wrong_engines import EXAMPLE, WRONG, Floats, Rule, bias
from specviz.app.components.scripted_html import ScriptedHTML

WORDS = ("sea", "light", "storm", "fog", "ship", "wind")
"""The vocabulary of the example."""
_DIGITS = 12
"""Number of decimals to which probabilities are rounded before they are compared and shown."""


class WrongEnginesView(ScriptedHTML):
    """A card for each wrong engine: its rule, its report, and its exact probabilities beside the right ones."""

    MODULE = "wrong_engines/wrong_engines"

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(words=WORDS, engines=[engine_card(rule) for rule in WRONG], **kwargs)


def engine_card(rule: Rule) -> dict[str, Any]:
    """What the page shows of a wrong engine: the token at which its distribution departs most from the right one, and both distributions.

    `after` is the word before this token, or None for the first token. `biases` are two total variation distances: at this
    token, and of both tokens together. `word` is the index of the word whose probability departs most.
    """
    law, claim = rule.law(*EXAMPLE), rule.claim(*EXAMPLE)
    tokens: list[tuple[str | None, Floats, Floats]] = [(None, law.sum(axis=1), claim.sum(axis=1))]
    for first in np.flatnonzero(claim.sum(axis=1)):
        tokens.append((WORDS[first], law[first] / law[first].sum(), claim[first] / claim[first].sum()))
    after, *pair = max(tokens, key=lambda token: round(bias(*token[1:]), _DIGITS))
    writes, should = (each.round(_DIGITS) for each in pair)
    excess = (writes - should).round(_DIGITS).tolist()
    return {
        "name": rule.name,
        "sentence": rule.sentence,
        "report": _linked(rule.report),
        "after": after,
        "writes": writes.tolist(),
        "should": should.tolist(),
        "word": max(range(len(WORDS)), key=lambda word: (abs(excess[word]), excess[word])),
        "biases": [bias(writes, should), bias(law, claim)],
    }


def _linked(report: str) -> dict[str, str]:
    """Split a citation "… owner/name#number…" into the texts before and after the reference, the reference and its address."""
    found = re.fullmatch(r"(.*?)([\w.-]+/[\w.-]+)#(\d+)(.*)", report)
    assert found, report
    before, name, number, after = found.groups()
    address = f"https://github.com/{name}/issues/{number}"
    return {"before": before, "reference": f"{name}#{number}", "address": address, "after": after}
