"""The methods by name: the nine of "Faster Cascades via Speculative Decoding" (Narasimhan et al., ICLR 2025, arXiv 2405.19261),
those published since, and whatever `register_method` adds.

A rule is one line of the language of `core.expression`. The paper's tests read q1 and p1, and OPT also the total variation of q and p;
pi mixes q and p; a is the lenience (the paper's alpha). `METHODS` is the one registry: engine, page, shell, API, sweep and docs read names,
rules, formulas, sentences and ranges from it, and the playground computes from the same lines.

docs/methods.md names the code against which each rule published since the paper was checked. Of these, rules that are deferral tests
are decoded losslessly towards the distribution that the test defines: texts are distributed as under the published rule, and at least as
many draft tokens are accepted. The other rules accept and resample as published, and emit the distribution that results.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace
from functools import lru_cache
from types import MappingProxyType

from specviz.core.method import OWN, Method
from specviz.errors import RequestError, quoted

OWN_RULE = "own_rule"
"""Name of the method whose rule is given with the request."""

_ROWS: dict[str, tuple[Method, ...]] = {
    "Baselines": (
        Method(
            name="drafter_only",
            label="Drafter only: nobody checks",
            formula="π = q",
            sentence="The small model writes alone and the verifier never runs: the fastest text, and the lower baseline for quality.",
            verifies=False,
        ),
        Method(
            name="verifier_only",
            label="Verifier only: nothing is drafted",
            formula="π = p",
            sentence="The large model writes alone, one forward pass for each token: the baseline that speed-ups are measured against.",
            drafts=False,
        ),
    ),
    "Speculative decoding": (
        Method(
            name="speed",
            label="Speculative decoding: lossless at α = 0",
            formula="accept with min(1, p(v) / ((1 − α)·q(v)))",
            ratio="p(v) / max(1e-10, (1 - a) * q(v))",  # the smallest denominator is that of the paper's published notebook
            sentence="At α = 0 lossless: the text has exactly the verifier's distribution, in fewer calls of the verifier, and at temperature 0 it is the verifier's very text. Above 0 it accepts more and drifts towards the drafter.",
            offered_range=(0.0, 1.0),
            strict_end="0: lossless",
            drafter_end="1: accept nearly everything",
            source="lossy decoding: Leviathan et al. 2023, A.5",
        ),
    ),
    "Deferral rules, for the drafter as a whole": (
        Method(
            name="cascade_chow",
            label="Chow: trust a confident drafter",
            expression="max q1 >= 1 - a",
            sentence="Trusts the drafter wherever the drafter itself is confident enough, whatever the verifier thinks.",
            offered_range=(0.0, 1.0),
            default_lenience=0.5,
            strict_end="0: trust only certainty",
            drafter_end="1: always trust",
            source="equation 2",
        ),
        Method(
            name="cascade_diff",
            label="Diff: trust a drafter nearly as sure as the verifier",
            expression="max q1 >= max p1 - a",
            sentence="Trusts the drafter wherever its confidence falls short of the verifier's by at most α.",
            offered_range=(-1.0, 1.0),
            default_lenience=0.1,
            strict_end="−1: never trust, so lossless",
            drafter_end="1: always trust",
            source="equation 5",
        ),
        Method(
            name="cascade_opt",
            label="OPT: trust the drafter where that saves rejections",
            expression="max q1 >= max p1 - a * TV",
            sentence="Like Diff, but the allowance is α times TV(q, p), the rejection rate that trusting the drafter saves.",
            lenience_range=(-math.inf, math.inf),
            offered_range=(-5.0, 5.0),
            default_lenience=0.3,
            strict_end="−5: hardly ever trust",
            drafter_end="5: nearly always trust",
            source="equation 10",
        ),
    ),
    "Token rules, for each token by itself": (
        Method(
            name="cascade_tokenV1",
            label="Token V1: the drafter finds the token likely enough",
            expression="q1(v) >= max p1 - a",
            sentence="Trusts each proposed token whose drafter probability comes within α of the verifier's best.",
            offered_range=(-1.0, 1.0),
            default_lenience=0.3,
            strict_end="−1: never trust, so lossless",
            drafter_end="1: always trust",
            source="equation 13",
        ),
        Method(
            name="cascade_tokenV2",
            label="Token V2: at most α below the verifier's favourite",
            expression="p1(v) >= max p1 - a",
            sentence="Trusts each proposed token whose verifier probability comes within α of the verifier's best.",
            offered_range=(-1.0, 1.0),
            default_lenience=0.2,
            strict_end="−1: never trust, so lossless",
            drafter_end="1: always trust",
            source="equation 14",
        ),
        Method(
            name="cascade_tokenV3",
            label="Token V3: at least 1 − α of the verifier's favourite",
            expression="p1(v) >= (1 - a) * max p1",
            sentence="Trusts each proposed token that the verifier finds at least 1 − α times as likely as its own favourite.",
            offered_range=(0.0, 1.0),
            default_lenience=0.8,
            strict_end="0: trust only the verifier's favourite",
            drafter_end="1: always trust",
            source="equation 15",
        ),
    ),
    "Since the paper": (
        Method(
            name="static_mixture",
            label="Static mixture: write with both models at once",
            formula="π = (1 − α)·p + α·q",
            ratio="((1 - a) * p(v) + a * q(v)) / q(v)",
            sentence="Decodes losslessly towards a fixed mixture of the two models: of all targets as near to the verifier in total variation, it accepts the most drafts.",
            offered_range=(0.0, 1.0),
            default_lenience=0.3,
            strict_end="0: lossless",
            drafter_end="1: accept everything",
            source="DIVERSED, its static ensemble with w = 1 − α (Wang et al., AISTATS 2026, arXiv 2604.07622); Transformers: `assistant_ensemble_weight`",
        ),
        Method(
            name="cactus",
            label="Cactus: make whatever is proposed likelier",
            formula="accept with min(1, h(v) / q(v)), h = min(1, p + √(2α·p·(1 − p)))",
            ratio="min(1, p(v) + sqrt(2 * a * p(v) * (1 - p(v)))) / q(v)",
            share="max(1e-30, (1 - min(1, p(v) + sqrt(2 * a * p(v) * (1 - p(v))))) / max(1e-30, 1 - p(v)))",
            sentence="Raises the verifier's probability of whatever is proposed, by more the larger α is, and lowers all others to make room: the target depends on the proposal.",
            lenience_range=(0.0, math.inf),
            offered_range=(0.0, 2.0),
            default_lenience=0.5,
            strict_end="0: lossless",
            drafter_end="2: accept most of what the verifier finds possible",
            source="Hao and Mou, ICLR 2026, arXiv 2604.04987; the authors' sampler for vLLM (MANGA-UOFA/Cactus)",
        ),
        Method(
            name="typical_acceptance",
            label="Typical acceptance: keep what the verifier finds typical",
            formula="p(v) ≥ min(ε, δ·e^(−H(p))), ε = (1 − α)², δ = 1 − α",
            expression="p(v) >= min((1 - a) * (1 - a), (1 - a) * exp(-H(p)))",
            sentence="Trusts each proposed token whose verifier probability reaches a threshold: the flatter p, the lower the threshold.",
            offered_range=(0.0, 1.0),
            default_lenience=0.7,
            strict_end="0: trust only what is likelier than typical",
            drafter_end="1: always trust",
            source="Medusa (Cai et al., ICML 2024, arXiv 2401.10774), with its recommended δ = √ε; Medusa, TensorRT-LLM, vLLM until 0.8",
        ),
        Method(
            name="relaxed_top_k",
            label="Relaxed top-k: keep one of the verifier's ten best",
            expression="p1(v) >= max(top(10, p1), max p1 - a)",
            sentence="Trusts each proposed token that is among the verifier's ten most probable and comes within α of its best.",
            offered_range=(0.0, 1.0),
            default_lenience=0.6,
            strict_end="0: trust only the verifier's favourite",
            drafter_end="1: trust any of the ten",
            source="TensorRT-LLM's relaxed acceptance, `relaxed_topk` = 10 and `relaxed_delta` = α",
        ),
        Method(
            name="fuzzy",
            label="Fuzzy: trust a drafter that agrees with the verifier",
            expression="JS <= a",
            sentence="Trusts the drafter wherever the two models' distributions diverge by at most α, whatever is proposed.",
            lenience_range=(0.0, 1.0),
            offered_range=(0.0, 0.7),
            default_lenience=0.1,
            strict_end="0: trust only perfect agreement",
            drafter_end="0.7: always trust, since JS is at most ln 2",
            source="Holsman et al., ACL Findings 2025, arXiv 2502.20704, with the Jensen–Shannon divergence; the authors' code (maxholsman/fsd)",
        ),
        Method(
            name="relaxed_coin",
            label="Relaxed coin: accept more where the verifier is unsure",
            ratio="p(v) / q(v) + a * (1 - max p)",
            sentence="Speculative decoding that adds α·(1 − max p) to the acceptance probability, so more is accepted where the verifier is unsure; the residual is unchanged.",
            offered_range=(0.0, 1.0),
            default_lenience=0.3,
            strict_end="0: lossless",
            drafter_end="1: add all of 1 − max p",
            source="EARS (Sun et al. 2025, arXiv 2512.13194); the authors' sampler for vLLM on Ascend",
        ),
    ),
    "Also lossless": (
        Method(
            name="sampler_match",
            label="Sampler match: keep what the verifier draws itself",
            formula="accept v where the verifier’s own draw from p is v",
            ratio="p(v)",
            matches=True,
            sentence="The verifier draws its own token, and a draft token is kept where it is the same one. Lossless at every temperature: the text is the one that the verifier alone writes, token for token. It keeps fewer drafts than speculative decoding.",
            source="llama.cpp: `common_sampler_sample_and_accept_n`",
        ),
        Method(
            name="gumbel_coupling",
            label="Gumbel coupling: both models draw with the same noise",
            formula="accept v where argmax p·e^G is v too, v = argmax q·e^G",
            matches=True,
            shares_noise=True,
            sentence="Both models draw with the same noise, and a draft token is kept where the verifier draws it too. Lossless, and the seed alone fixes the text: it is the same with any drafter. It keeps nearly as many drafts as speculative decoding.",
            source="drafter-invariant speculative decoding: Daliri, Musco and Suresh 2025, arXiv 2408.07978",
        ),
        Method(
            name="greedy_drafts",
            label="Greedy drafts: the drafter proposes its favourite",
            formula="accept the drafter’s favourite v with probability p(v)",
            ratio="p(v) / q(v)",
            greedy_drafts=True,
            sentence="Speculative decoding whose drafter always proposes its most probable token, at every temperature. Lossless, and the drafter’s probabilities are not needed; a token that the verifier finds unlikely is seldom kept.",
            source='vLLM’s default: `draft_sample_method` "greedy"',
        ),
        Method(
            name="lossless_min_p",
            label="Lossless min-p: cut off what the verifier finds unlikely",
            formula="π = p without the tokens below (1 − α)·max p",
            ratio="p(v) / q(v)",
            truncates=True,
            sentence="Cuts off tokens less than 1 − α times as likely as the favourite, in both models, and decodes losslessly towards what is left of the verifier’s distribution: no draft token is trusted. The baseline for token rules.",
            offered_range=(0.0, 1.0),
            default_lenience=0.9,
            strict_end="0: the favourite alone",
            drafter_end="1: nothing is cut off, so lossless",
            source="the truncation baseline of “Revisiting Lossy Verification”, arXiv 2607.26627, with min-p (Nguyen et al. 2024, arXiv 2407.01082)",
        ),
    ),
    OWN: (
        Method(
            name=OWN_RULE,
            label="Your own rule: say which tokens to trust",
            expression="p1(v) >= (1 - a) * max p1 and H(p1) > 0.5",
            sentence="Trusts each proposed token for which your rule holds. Every rule defines a distribution π, and the text is drawn exactly from it.",
            lenience_range=(-math.inf, math.inf),
            offered_range=(0.0, 1.0),
            default_lenience=0.5,
            strict_end="0: as your rule says",
            drafter_end="1: as your rule says",
            source="yours",
        ),
    ),
}
"""The methods by the heading of their group, in the order in which they are shown."""

_METHODS = {row.name: replace(row, group=group) for group, rows in _ROWS.items() for row in rows}
METHODS: MappingProxyType[str, Method] = MappingProxyType(_METHODS)
"""All methods by name, group by group."""
PAPER = tuple(METHODS)[:9]
"""Names of the paper's nine methods."""
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,39}")


def get_method(name: str, rule: str = "") -> Method:
    """The method called `name`; `rule` is the deferral test of the method `own_rule`.

    Raises:
        RequestError: there is no such method, the rule is not text, or a rule is given for another method than `own_rule`.
        RuleError: `rule` is no rule.
    """
    if not isinstance(name, str) or name not in METHODS:
        raise RequestError(f"There is no method {quoted(name)}; the methods are {', '.join(METHODS)}.")
    if not isinstance(rule, str):
        raise RequestError("The rule must be text.")
    if not rule:
        return METHODS[name]
    if name != OWN_RULE:
        raise RequestError(f"{name} has a rule already: to use your own, choose the method {OWN_RULE}.")
    return _own(rule)


@lru_cache(256)
def _own(rule: str) -> Method:
    from specviz.core.expression.tensors import probe  # needs torch, which the registry's own rows do not

    method = replace(METHODS[OWN_RULE], expression=rule, formula="")
    probe(method.trees["test"], rule)
    if method.trees["test"].has_lenience:
        return method
    return replace(method, offered_range=(0.0, 0.0), default_lenience=0.0)


def register_method(method: Method) -> Method:
    """Add a method to the registry and return it; page, shell and API then offer it. Register before serving a page.

    Raises:
        RequestError: its name is taken or invalid, its default is outside the offered range, or it does not have exactly
            one of expression, function and ratio.
        RuleError: its expression, ratio or share is invalid.
    """
    if not _NAME.fullmatch(method.name):
        raise RequestError(
            f"{quoted(method.name)} is not a valid method name: use up to 40 letters, digits and underscores, "
            "beginning with a letter."
        )
    if method.name in METHODS:
        raise RequestError(f"There is a method {method.name} already: give yours another name.")
    if sum(map(bool, (method.expression, method.function, method.ratio))) != 1:
        raise RequestError("A method has exactly one of expression, function and ratio.")
    low, high = method.offered_range
    if not low <= method.default_lenience <= high:
        raise RequestError(f"The default lenience of {method.name} is outside the range that it offers.")
    if "test" in method.trees:  # parsed now, to raise their errors
        from specviz.core.expression.tensors import probe

        probe(method.trees["test"], method.expression)
    _METHODS[method.name] = method
    return method
