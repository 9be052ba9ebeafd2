"""What may make a GPU faster or steadier and has been measured on none: each is off until SPECVIZ_GPU_TRIALS names it.

What a real GPU proves stays without a name here; what it refutes goes. Knows names; knows nothing of what they change.
"""

from __future__ import annotations

import os

from specviz.errors import RequestError, quoted

VARIABLE = "SPECVIZ_GPU_TRIALS"
TRIALS = {
    "fixed": "passes of one fixed number of tokens: products round alike in whatever company (laws 2 and 3 in bfloat16)",
    "fused": "norms as one kernel, and products of the same input joined",
    "split": "attention over long contexts in parts, side by side",
    "draws": "draws and truncation over a large vocabulary in wider steps",
}
"""Their names, and what each does."""


def tried(name: str) -> bool:
    """Whether a trial of `TRIALS` is on.

    Raises:
        RequestError: the variable names one that there is not.
    """
    return name in parse(os.environ.get(VARIABLE, ""))


def parse(text: str) -> frozenset[str]:
    """The trials in a list with commas between them.

    Raises:
        RequestError: there is none of some name.
    """
    names = frozenset(filter(None, (name.strip() for name in text.split(","))))
    if unknown := sorted(names - TRIALS.keys()):
        raise RequestError(f"{VARIABLE} names {quoted(unknown[0])}: there are {', '.join(TRIALS)}.")
    return names
