"""What SpecViz takes from transformers beyond its documentation; a failure says what is lost. And process-wide switches."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import TextStreamer

from specviz.compat.transformers import (
    ProcessSwitch,
    attention_of,
    cache_argument,
    eos_ids,
    generate_arguments,
    padding_id,
)
from tests.support.tiny import tiny_model, tiny_tokenizer


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return tiny_model("llama", 300, 1, tmp_path_factory.mktemp("model"))


def test_the_attention_and_the_cache_argument_of_a_model_can_be_read(model: Any) -> None:
    for name in ("eager", "sdpa"):
        model.set_attn_implementation(name)
        assert attention_of(model) == name, "grouped attention is used where it must not be, or never"
    assert cache_argument(type(model)) in ("cache", "past_key_values")


def called(model: Any, **options: Any) -> dict[str, Any]:
    """What a custom function finds when `generate` calls it."""
    found: dict[str, Any] = {}

    def custom(model: Any, input_ids: Any, generation_config: Any, **_: Any) -> Any:
        found.update(arguments=generate_arguments(), config=generation_config)
        return input_ids

    model.generate(torch.tensor([[5, 6]]), custom_generate=custom, max_new_tokens=2, **options)
    return found


def test_the_arguments_of_generate_can_be_read_from_within(model: Any, tmp_path: Path) -> None:
    given = {"streamer": TextStreamer(tiny_tokenizer(tmp_path)), "synced_gpus": False}
    arguments = called(model, **given, assistant_tokenizer="another", pad_token_id=0)["arguments"]
    assert given.items() <= arguments.items(), "cascade_generate would not stream"
    assert arguments["assistant_tokenizer"] == "another"
    assert "assistant_model" in arguments, "cascade_generate would take no notice of an assistant"
    assert not {"cache", "past_key_values"} & set(arguments), (
        "a cache of `generate` is taken for the caller's"
    )
    assert generate_arguments() == {}


def test_a_prepared_config_tells_the_ids_that_pad_and_end(model: Any) -> None:
    config = called(model, eos_token_id=[3, 7], pad_token_id=9)["config"]
    assert (eos_ids(config), padding_id(config)) == ({3, 7}, 9), "cascade_generate would not end"
    config = called(model)["config"]
    assert (eos_ids(config), padding_id(config)) == (frozenset(), None)


class Setting:
    """A setting of a library, and how often it was changed."""

    def __init__(self) -> None:
        self.value, self.changes = "loud", 0
        self.switch = ProcessSwitch(self._change)

    def _change(self) -> Callable[[], None]:
        before, self.value = self.value, "quiet"
        self.changes += 1
        return lambda: setattr(self, "value", before)


def test_the_last_block_to_end_restores_also_after_an_exception() -> None:
    setting = Setting()

    def fail() -> None:
        with setting.switch:
            with setting.switch:
                assert setting.value == "quiet"
            assert setting.value == "quiet"
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert (setting.value, setting.changes) == ("loud", 1)
    setting.value = "louder"
    with setting.switch:
        assert setting.value == "quiet"
    assert setting.value == "louder"


def test_threads_that_overlap_restore_once_all_are_done() -> None:
    setting, barrier = Setting(), threading.Barrier(4)

    def block() -> None:
        with setting.switch:
            barrier.wait()
            assert setting.value == "quiet"
            barrier.wait()

    threads = [threading.Thread(target=block) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (setting.value, setting.changes) == ("loud", 1)
