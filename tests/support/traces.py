"""Handmade traces of schema "specviz-trace", without any model.

Numbers are drawn from a seed and obey the rules of a trace: acceptance = min(1, π/q), accepted iff coin < acceptance.
"""

from __future__ import annotations

import json
import random
import re
import zlib
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
_WORDS = [" an", " from", " dark", " wine"]
"""Draft tokens that were rejected; none is of the story."""


def story_tokens() -> list[str]:
    """The story, cut into tokens."""
    return re.findall(r"\n| ?\w+| ?[^\w\s]", STORY)


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


def _token(text: str, method: str, lenience: float, inspect: int, luck: random.Random) -> dict[str, Any]:
    """An emitted token; its coin decides whether it was accepted."""
    q, p = (round(luck.uniform(0.05, 0.9), 4) for _ in "qp")
    is_cascade, score = method.startswith("cascade"), round(luck.random(), 4)
    threshold = round(1 - lenience, 4)
    pi = q if is_cascade and score >= threshold else p
    coin, acceptance = round(luck.random() * 0.999, 4), round(min(1.0, pi / q), 4)
    token = token_entry(
        text, id=zlib.crc32(text.encode()) % 40_000, accepted=coin < acceptance, q=q, p=p, pi=pi,
        acceptance=acceptance, coin=coin,
    )  # fmt: skip
    if is_cascade:
        token["rule"] = {"score": score, "threshold": threshold, "trusted": score >= threshold}
    if method == "drafter_only":
        token |= {"accepted": True, "p": None, "pi": q, "acceptance": None, "coin": None}
    elif method == "verifier_only":
        token |= {"accepted": False, "q": None, "pi": p, "acceptance": None, "coin": None}
    elif not token["accepted"]:
        token["draft"] = {"id": 9, "text": luck.choice(_WORDS), "q": q, "p": p, "pi": pi}
        residual = round((1 - p) * luck.uniform(0.2, 0.9), 4)
        token |= {"q": round(q / 2, 4), "p": residual, "pi": residual}
    if inspect:
        shown = [entry for entry in (token, token["draft"]) if entry]
        token["top"] = {
            key: None
            if token[key] is None
            else [{"id": each["id"], "text": each["text"], "probability": each[key]} for each in shown]
            for key in ("q", "p", "pi")
        }
    if alternatives(method, lenience, inspect):
        token["what_if"] = what_if(method, acceptance, [])
    return token


def make_trace(
    texts: list[str] | None = None,
    *,
    method: str = "cascade_chow",
    lenience: float = 0.3,
    draft_length: int = 5,
    inspect: int = 10,
    seed: int = 0,
    eos: str | None = "<|im_end|>",
    stop_reason: str | None = "eos",
) -> Trace:
    """A whole trace that emits `texts` (by default the story), then the special token `eos` if there is one.

    `stop_reason` None leaves the run unfinished: no last line.
    """
    luck, todo = random.Random(seed), [*(story_tokens() if texts is None else texts), *([""] if eos else [])]
    settings = {"lenience": lenience, "inspect": inspect, "draft_length": draft_length}
    others = alternatives(method, lenience, inspect)
    trace = Trace([line(run_entry(method, **settings, alternatives=others))])
    while len(trace.tokens) < len(todo):
        start, tokens = len(trace.tokens), []
        planned = todo[start : start + (1 if method == "verifier_only" else draft_length)]
        for position, text in enumerate(planned, 40 + start):
            tokens.append(_token(text, method, lenience, inspect, luck) | {"position": position})
            if tokens[-1]["draft"]:
                break
        if eos and start + len(tokens) == len(todo):
            tokens[-1] |= {"special": True, "label": eos}
        entry = round_entry(tokens, index=len(trace.rounds)) | {"draft_length": len(planned)}
        # The last draft token of a round is recorded only if it is examined.
        drafted = planned[len(tokens) :] if len(tokens) == len(planned) else planned[len(tokens) : -1]
        entry["proposals"] += [{"id": 8, "text": text, "q": 0.5} for text in drafted]
        if method.endswith("_only"):
            entry["examined"] = 0
        if method == "verifier_only":
            entry |= {"proposals": [], "draft_length": 0}
        trace.tokens += tokens
        trace.rounds.append(entry)
        trace.lines.append(line(entry))
    if stop_reason is not None:
        trace.lines.append(line(end_entry(len(trace.rounds), method, stop_reason)))
    return trace
