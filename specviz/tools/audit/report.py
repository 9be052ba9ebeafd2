"""The report of an audit, as Markdown that a maintainer can act on, and as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from specviz.analysis.audit import LEVEL
from specviz.tools.audit.auditing import Audited, AuditOptions
from specviz.tools.audit.models import PROMPT
from specviz.tools.templates import Rows, table

_HEADER = ("Engine", "Temperature", "p-value", "Total variation, at least (95 % interval)", "Finding")


def markdown(found: Sequence[Audited], options: AuditOptions, about: Mapping[str, str]) -> str:
    """The report."""
    rows: Rows = [_HEADER]
    for each in found:
        finding = each.finding
        distance, low, high = (
            f"{100 * share:.1f}" for share in (finding.distance, finding.low, finding.high)
        )
        verdict = "**departs from its claim**" if finding.departs else "no departure found"
        p_value = f"{finding.p_value:.2g}" if finding.p_value else "below 1e-300"
        rows.append(
            (each.engine, f"{each.temperature:g}", p_value, f"{distance} % ({low} to {high} %)", verdict)
        )
    needed = max(each.finding.samples_needed for each in found)
    paragraphs = [
        "# Audit of sampling engines",
        f"Claim: the first {options.tokens} tokens after a prompt are distributed as the verifier alone would sample them.",
        table(rows),
        *(_departure(each) for each in found),
        f"{options.samples:,} samples of each engine and temperature. Known engines draft {options.draft_length} tokens a block. The prompt is the "
        f"token ids {list(PROMPT)} of a tiny pair. The law is enumerated with transformers' forward pass of the verifier, and compared "
        f"by a G-test over cells of at least five expected samples. An engine departs if its p-value is below {LEVEL:g}. A bias of 1 % "
        f"between these cells, however it is spread, would be found by {needed:,} samples with 90 % power.",
        *(
            f"{each} chooses how it drafts. It has to sample from the model in `{options.models}/verifier`: "
            "a departure may also mean that it does not."
            for each in options.others
        ),
        f"Reproduce: `{about['command']}`",
        f"Versions: {about['versions']}.",
    ]
    return "\n\n".join(paragraphs) + "\n"


def to_json(found: Sequence[Audited], options: AuditOptions, about: Mapping[str, str]) -> str:
    """Everything that was found."""
    audited = [{**asdict(each), "departs": each.finding.departs} for each in found]
    setting = {"tokens": options.tokens, "draft_length": options.draft_length, "prompt_ids": PROMPT}
    return json.dumps({**about, **setting, "audited": audited}, indent=1) + "\n"


def _departure(each: Audited) -> str:
    finding, worst = each.finding, each.finding.departure
    after = f"the prompt and {worst.prefix}" if worst.prefix else "the prompt"
    never = f" {finding.impossible:,} samples are impossible under the law." if finding.impossible else ""
    return (
        f"**{each.engine}, temperature {each.temperature:g}**: G = {finding.statistic:.1f} with {finding.freedom} degrees of freedom. "
        f"Farthest from the law after {after}: token {worst.token}, expected {worst.expected:.1f} times, written {worst.observed:,} "
        f"times ({worst.deviations:+.1f} standard deviations).{never}"
    )
