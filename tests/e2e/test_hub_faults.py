"""A hub that fails: one sentence each time, the server goes on, the next try works, and no half file is used."""

from __future__ import annotations

import pytest

from tests.support.hub_visitor import Visitor
from tests.support.stand_in_hub import Answer, BreakOff
from tests.support.stand_in_hub.server import GOOD_TOKEN


@pytest.fixture(autouse=True)
def nothing_cached(visitor: Visitor) -> None:
    visitor.forget()


def test_a_fault_is_one_sentence_and_the_next_try_works(visitor: Visitor) -> None:
    """Also a fault of the file alone that names the ids which end a text: without it the text would be another."""
    for fault, sentence in (
        ((Answer(404), "facebook/*"), "opt-125m"),
        ((Answer(404), "*/opt-350m", "generation_config.json"), "answered with an error"),
        ((Answer(429),), "answered with an error"),
        ((Answer(503),), "answered with an error"),
    ):
        with visitor.hub.plays(*fault):
            assert sentence in visitor.refusal("opt")
    assert visitor.write("opt")
    assert not visitor.unfinished()


def test_a_download_that_breaks_off_is_resumed_or_leaves_no_half_file(visitor: Visitor) -> None:
    """It breaks off in the middle of a file, once or whenever the rest is asked for; files that are whole may stay."""
    file = "model-00002-of-00004.safetensors"
    with visitor.hub.plays(BreakOff(0.5), files=file, times=1), visitor.hub.plays(BreakOff(0.0), files=file):
        assert "broke off" in visitor.refusal("qwen2.5")
    assert visitor.write("qwen2.5")
    with visitor.hub.plays(BreakOff(0.5), files="pytorch_model.bin", times=1):
        assert visitor.write("opt")
    assert not visitor.unfinished()


def test_a_gated_pair_needs_the_licence(visitor: Visitor) -> None:
    """Without a token, or with one that has no access, nothing is downloaded; once logged in the pair loads."""
    for token in ("", "hf_other"):
        visitor.log_in(token)
        assert "is gated: accept its licence" in visitor.refusal("gemma2")
        assert not list((visitor.home / "hub").glob("models--google*/blobs/*"))
    visitor.log_in(GOOD_TOKEN)
    visitor.write("gemma2")
    visitor.log_in("")
