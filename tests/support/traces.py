"""Handmade traces of schema "specviz-trace", without any model.

Numbers are drawn from a seed and obey the rules of a trace: acceptance = min(1, π/q), accepted iff coin < acceptance,
at most `draft_length` tokens a round.
"""

from __future__ import annotations

import json
import random
import re
from dataclasses import dataclass, field
from typing import Any

from specviz.core.methods import METHODS, PAPER

STORY = (
    "A rainbow is sunlight, taken apart by rain. When a ray enters a drop of water it slows down and bends, and blue "
    "light bends a little more than red. The ray is reflected once at the back of the drop, bends again as it leaves, "
    "and comes back to you as a fan of colours.\n\nThree things must come together:\n"
    "1. the sun behind you, not too high;\n2. rain in front of you;\n3. an eye at the right angle, about 42 degrees.\n\n"
    "Every drop sends you only one colour, so the bow that you see is made by millions of drops, and the person beside "
    "you sees another bow, made by other drops. 🌈 That is why nobody has ever reached the end of one: walk towards "
    "it, and it walks away with you."
)
PROMPT = "What is a rainbow, and why can nobody reach its end?"
_WORDS = [
    " the", " a", " of", " and", " to", " in", " that", " it", " light", " water", " colour", " rain", " sun", " is",
    ",", ".", " drop", " you", " one", " bow",
]  # fmt: skip


def story_tokens(text: str = STORY) -> list[str]:
    """Cut a text into tokens as a byte-level vocabulary does; an emoji comes as "" and then as a whole."""
    pieces: list[str] = []
    for piece in re.findall(r"\n| ?[A-Za-z]+| ?\d| ?[^\sA-Za-z\d]| ", text):
        if len(piece.strip()) > 7:
            pieces += [piece[:5], piece[5:]]
        elif ord(piece.strip()[:1] or " ") > 0xFFFF:
            pieces += ["", piece]
        else:
            pieces.append(piece)
    return pieces


@dataclass
class Trace:
    """The lines of a trace, each ending in a newline, and its tokens and rounds as objects."""

    lines: list[str] = field(default_factory=list)
    tokens: list[dict[str, Any]] = field(default_factory=list)
    rounds: list[dict[str, Any]] = field(default_factory=list)

    @property
    def value(self) -> str:
        """The whole trace as one string."""
        return "".join(self.lines)

    @property
    def text(self) -> str:
        """The texts of all tokens joined."""
        return "".join(token["text"] for token in self.tokens)

    def prefixes(self) -> list[str]:
        """The trace as it grows, line by line."""
        return ["".join(self.lines[: count + 1]) for count in range(len(self.lines))]


def line(entry: dict[str, Any]) -> str:
    """One line of a trace."""
    return json.dumps(entry, ensure_ascii=False) + "\n"


def run_entry(method: str = "cascade_chow", **changes: Any) -> dict[str, Any]:
    """The first line's object."""
    entry = {
        "type": "run", "schema": "specviz-trace", "version": 4, "specviz": "0.1.0", "pair": "embedded",
        "drafter": "tiny drafter", "verifier": "SmolLM2-135M-Instruct", "method": method, "lenience": 0.3,
        "draft_length": 5, "temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "rule": "", "repetition_penalty": 1.0, "seed": 0, "max_new_tokens": 256,
        "forbidden_tokens": [], "echo": False, "inspect": 10, "prompt": PROMPT, "prompt_ids": [1, 2, 3],
        "device": "cpu", "dtype": "float32", "alternatives": [],
    }  # fmt: skip
    return {**entry, **changes}


def alternatives(method: str, lenience: float, inspect: int = 10) -> list[dict[str, Any]]:
    """The header's list of methods that each token records an acceptance for."""
    if not inspect or method.endswith("_only"):
        return []
    own = {name: METHODS[name].default_lenience for name in PAPER} | {method: lenience}
    return [{"method": name, "lenience": at} for name, at in own.items()]


def what_if(method: str, acceptance: float, flips: list[float], **changes: Any) -> dict[str, Any]:
    """A token's what-if: the acceptance and critical leniences of `method` as given, no critical lenience of the others."""
    names = list(dict.fromkeys((*PAPER, method)))
    return {
        "acceptance": [acceptance if name == method else float(name != "verifier_only") for name in names],
        "flips": [flips if name == method else [] for name in names],
        "kept": None,
        **changes,
    }


def token_entry(text: str, **changes: Any) -> dict[str, Any]:
    """An emitted token's object: drafted and accepted, unless `changes` say otherwise."""
    entry = {
        "id": 123, "text": text, "position": 40, "special": False, "label": text, "accepted": True, "draft": None,
        "q": 0.31, "p": 0.42, "pi": 0.35, "acceptance": 0.87, "coin": 0.23, "rule": None, "top": None,
        "what_if": None,
    }  # fmt: skip
    return {**entry, **changes}


def round_entry(tokens: list[dict[str, Any]], **changes: Any) -> dict[str, Any]:
    """A round's object in which every token was drafted and examined."""
    drafts = [token["draft"] or token for token in tokens]
    tokens = [{"round": changes.get("index", 0), **token} for token in tokens]
    entry = {
        "type": "round", "index": 0, "draft_length": len(tokens),
        "proposals": [{key: draft[key] for key in ("id", "text", "q")} for draft in drafts],
        "examined": len(tokens), "accepted": sum(token["accepted"] for token in tokens),
        "seconds": 0.2, "drafter_seconds": 0.11, "verifier_seconds": 0.08, "tokens": tokens,
    }  # fmt: skip
    return {**entry, **changes}


def end_entry(rounds: int, method: str, stop_reason: str) -> dict[str, Any]:
    """The last line's object."""
    verified = method != "drafter_only"
    return {
        "type": "end", "stop_reason": stop_reason, "seconds": 0.2 * rounds + 0.1, "prefill_seconds": 0.1,
        "verifier_calls": rounds if verified else 0, "drafter_calls": 0 if method == "verifier_only" else 5 * rounds,
    }  # fmt: skip


class _Maker:
    """Draws the numbers of one trace."""

    def __init__(self, method: str, lenience: float, inspect: int, seed: int):
        self.method, self.lenience, self.inspect = method, lenience, inspect
        self.random = random.Random(seed)
        self.alternatives = alternatives(method, lenience, inspect)
        self.luck = random.Random(seed)  # of its own: what if changes nothing of what was
        self.ids: dict[str, int] = {}

    def id_of(self, text: str) -> int:
        return self.ids.setdefault(text, 100 + 37 * len(self.ids))

    def probability(self) -> float:
        return round(min(0.97, max(0.004, self.random.betavariate(1.1, 1.3))), 4)

    def top(self, shown: dict[str, float]) -> list[dict[str, Any]] | None:
        """A list of candidates, most likely first, that contains those in `shown`."""
        entries = [
            {"id": self.id_of(text), "text": text, "probability": probability}
            for text, probability in shown.items()
        ]
        left = 1.0 - sum(shown.values())
        for text in self.random.sample(_WORDS, self.inspect):
            if text not in shown and left > 0.002:
                probability = round(left * self.random.uniform(0.2, 0.6), 4)
                left -= probability
                entries.append({"id": self.id_of(text), "text": text, "probability": probability})
        return sorted(entries, key=lambda entry: -entry["probability"])[: self.inspect]

    def rule(self) -> dict[str, Any] | None:
        if not self.method.startswith("cascade"):
            return None
        score, threshold = round(self.random.uniform(0.2, 0.99), 4), round(1 - self.lenience, 4)
        return {"score": score, "threshold": threshold, "trusted": score >= threshold}

    def token(self, text: str, position: int, special: str | None = None) -> dict[str, Any]:
        """An emitted token; its coin decides whether it was accepted."""
        q, p = self.probability(), self.probability()
        rule = self.rule()
        pi = q if rule and rule["trusted"] else p
        factor = 1 - self.lenience if self.method == "speed" else 1.0
        acceptance = round(min(1.0, (p if self.method == "speed" else pi) / (factor * q)), 4)
        coin = round(self.random.random() * 0.999, 4)
        token = token_entry(
            text, id=self.id_of(special or text), position=position, special=special is not None, label=special or text,
            accepted=coin < acceptance, q=q, p=p, pi=pi, acceptance=acceptance, coin=coin, rule=rule,
        )  # fmt: skip
        if self.method == "drafter_only":
            token.update(accepted=True, p=None, pi=q, acceptance=None, coin=None)
        elif self.method == "verifier_only":
            token.update(accepted=False, q=None, pi=p, acceptance=None, coin=None)
        elif not token["accepted"]:
            self.reject(token)
        if self.inspect:
            token["top"] = self.tops(token)
        if self.alternatives:
            token["what_if"] = self.what_if(token)
        return token

    def what_if(self, token: dict[str, Any]) -> dict[str, Any]:
        """Each method accepts with p / q below its critical lenience; the run's method as recorded."""
        draft = token["draft"] or token
        acceptance, flips = [], []
        for one in self.alternatives:
            name = one["method"]
            since = self.luck.uniform(*METHODS[name].offered_range)
            strict = min(1.0, draft["p"] / draft["q"])
            if name == self.method:
                since = 1 - token["rule"]["score"] if token["rule"] else 1 - strict / max(token["coin"], 1e-9)
            own = token["acceptance"] if name == self.method else 1.0 if one["lenience"] >= since else strict
            flat = name.endswith("_only")
            acceptance.append(float(name == "drafter_only") if flat else round(own, 4))
            flips.append([round(since, 4)] if not flat and token["coin"] >= strict and since > 0 else [])
        kept = "token" in self.method and token["draft"]
        return {
            "acceptance": acceptance,
            "flips": flips,
            "kept": [self.lenience - 0.05, self.lenience + 0.1] if kept else None,
        }

    def reject(self, token: dict[str, Any]) -> None:
        """Move the numbers drawn so far to a rejected draft, and draw those of the emitted token."""
        text = self.random.choice([word for word in _WORDS if word != token["text"]])
        token["draft"] = {
            "id": self.id_of(text),
            "text": text,
            **{key: token[key] for key in ("q", "p", "pi")},
        }
        for key in ("q", "p"):
            token[key] = round((1 - token["draft"][key]) * self.random.uniform(0.2, 0.9), 4)
        token["pi"] = token["p"]

    def tops(self, token: dict[str, Any]) -> dict[str, Any]:
        named = [(token["label"], token)] + (
            [(token["draft"]["text"], token["draft"])] if token["draft"] else []
        )
        return {
            key: None if token[key] is None else self.top({text: entry[key] for text, entry in named})
            for key in ("q", "p", "pi")
        }


def make_trace(
    texts: list[str] | None = None,
    *,
    method: str = "cascade_chow",
    lenience: float = 0.3,
    draft_length: int = 5,
    inspect: int = 10,
    seed: int = 0,
    prompt: str = PROMPT,
    eos: str | None = "<|im_end|>",
    stop_reason: str | None = "eos",
) -> Trace:
    """A whole trace that emits `texts` (by default the story), then the special token `eos` if there is one.

    `stop_reason` None leaves the run unfinished: no last line.
    """
    maker = _Maker(method, lenience, inspect, seed)
    todo: list[tuple[str, str | None]] = [
        (text, None) for text in (story_tokens() if texts is None else texts)
    ]
    todo += [("", eos)] if eos else []
    trace = Trace(
        [
            line(
                run_entry(
                    method,
                    lenience=lenience,
                    prompt=prompt,
                    inspect=inspect,
                    draft_length=draft_length,
                    alternatives=maker.alternatives,
                )
            )
        ]
    )
    while len(trace.tokens) < len(todo):
        _add_round(trace, maker, todo, 1 if method == "verifier_only" else draft_length)
    if stop_reason is not None:
        trace.lines.append(line(end_entry(len(trace.rounds), method, stop_reason)))
    return trace


def _add_round(trace: Trace, maker: _Maker, todo: list[tuple[str, str | None]], size: int) -> None:
    """Propose what comes next, examine it up to the first rejection, and write the line."""
    start, tokens = len(trace.tokens), []
    for text, special in todo[start : start + size]:
        tokens.append(maker.token(text, 40 + start + len(tokens), special))
        if tokens[-1]["draft"]:
            break
    entry = round_entry(tokens, index=len(trace.rounds))
    if maker.method.endswith("_only"):
        entry["examined"] = 0
    entry["draft_length"] = size = len(todo[start : start + size])
    drafted = size if len(tokens) == size or not entry["examined"] else max(1, size - 1)
    for text, _ in todo[start + len(tokens) : start + drafted]:
        entry["proposals"].append({"id": maker.id_of(text), "text": text, "q": maker.probability()})
    if maker.method == "verifier_only":
        entry |= {"proposals": [], "draft_length": 0}
    trace.tokens += tokens
    trace.rounds.append(entry)
    trace.lines.append(line(entry))
