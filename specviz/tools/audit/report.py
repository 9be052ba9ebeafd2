"""The report of an audit, as Markdown that a maintainer can act on, and as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from specviz.analysis.audit import LEVEL, Finding
from specviz.tools.audit.auditing import Audited, AuditOptions
from specviz.tools.audit.models import PROMPT
from specviz.tools.templates import Rows, table

_NEW = ("Engine", "Temperature", "p-value", "Departure (total variation, at least)", "Finding")


def markdown(found: Sequence[Audited], options: AuditOptions, about: Mapping[str, str]) -> str:
    """The report."""
    rows: Rows = [_NEW]
    for each in found:
        finding = each.finding
        verdict = "**departs from its claim**" if finding.departs else "no departure found"
        rows.append((_title(each), f"{each.temperature:g}", _p(finding), _distance(finding), verdict))
    freedom = max(found, key=lambda each: each.finding.freedom).finding
    lines = [
        "# Audit of sampling engines",
        f"Claim: the first {options.tokens} tokens after a prompt are distributed as the verifier alone would sample them.",
        table(rows),
        *(_paragraph(each) for each in found if each.finding.departs),
        f"{options.samples:,} samples of each engine and temperature, with {options.draft_length} draft tokens a block. The pair is random "
        f"and tiny; the prompt is the token ids {list(PROMPT)}. The law is enumerated with transformers' forward pass of the verifier and "
        "compared by a G-test. An engine departs if the p-value is below "
        f"{LEVEL:g}. Any bias of 1 % total variation would be found with 90 % power by {freedom.samples_needed:,} samples, and most by fewer.",
        f"Reproduce: `{about['command']}`",
        f"Versions: {about['versions']}.",
    ]
    return "\n\n".join(lines) + "\n"


def to_json(found: Sequence[Audited], options: AuditOptions, about: Mapping[str, str]) -> str:
    """Everything that was found."""
    value: dict[str, Any] = {
        **about,
        "samples": options.samples,
        "tokens": options.tokens,
        "draft_length": options.draft_length,
        "prompt_ids": PROMPT,
        "audited": [{**asdict(each), "departs": each.finding.departs} for each in found],
    }
    return json.dumps(value, indent=1) + "\n"


def _title(each: Audited) -> str:
    return f"{each.engine} {each.version}".strip()


def _p(finding: Finding) -> str:
    return f"{finding.p_value:.2g}" if finding.p_value else "below 1e-300"


def _distance(finding: Finding) -> str:
    low, high = (100 * bound for bound in (finding.low, finding.high))
    return f"{100 * finding.distance:.1f} % ({low:.1f} to {high:.1f} %)"


def _paragraph(each: Audited) -> str:
    finding, worst = each.finding, each.finding.departure
    after = f"the prompt and {worst.prefix}" if worst.prefix else "the prompt"
    never = (
        f" {finding.impossible:,} samples are sequences that the law excludes." if finding.impossible else ""
    )
    return (
        f"**{_title(each)}, temperature {each.temperature:g}**: G = {finding.statistic:.1f} with {finding.freedom} degrees of freedom. "
        f"Departs most after {after}: token {worst.token} was expected {worst.expected:.1f} times and written {worst.observed:,} times "
        f"({worst.deviations:+.1f} standard deviations).{never}"
    )
