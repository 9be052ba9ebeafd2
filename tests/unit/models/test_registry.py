"""The registry: keys and sizes that are right, and no heavy library imported to list them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from specviz.errors import PairError
from specviz.models.loading import load_pair
from specviz.models.registry import DEFAULT_PAIR, PAIRS
from tests.unit.models.helpers import ROOT


def test_the_default_pair_needs_no_hub_and_unknown_ones_are_refused_with_the_known_names() -> None:
    assert PAIRS[DEFAULT_PAIR].origin == "embedded"
    assert all(spec.key == key for key, spec in PAIRS.items())
    with pytest.raises(PairError, match="embedded, embedded-skip, smollm2"):
        load_pair("nope")


def test_importing_the_layer_loads_no_heavy_library() -> None:
    """Pairs are listed, and unknown ones refused, before torch is imported."""
    heavy = ("torch", "transformers", "gradio", "huggingface_hub")
    code = (
        "import sys, specviz, specviz.models.availability, specviz.models.smollm2\n"
        "try: specviz.load_pair('nope')\n"
        "except specviz.models.registry.PairError: pass\n"
        f"print([m for m in {heavy} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
