"""Who gets a fused pass: law 5 for each trait of a checkpoint that fused passes have, or leave to torch."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from specviz.engine.engine import Engine
from specviz.errors import EngineError
from specviz.models.loading import load_pair
from specviz.runtime.cpu.fused import processor
from specviz.runtime.cpu.fused.runner import FusedModel
from specviz.runtime.model_runner import TorchModel
from specviz.schema.settings import AUTO, Request
from tests.support.checkpoints import published, write
from tests.support.tiny import tiny_model, tiny_tokenizer
from tests.unit.models.helpers import refusal, spec_of

PROMPT = [5, 6, 7, 8]
_NEW = 16
State = dict[str, torch.Tensor]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a tokenizer and nothing else yet."""
    tiny_tokenizer(tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture(params=[FusedModel, TorchModel])
def runner(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> type:
    """Either runner, which pairs are loaded for."""
    monkeypatch.setenv("SPECVIZ_CPU_RUNNER", "torch" if request.param is TorchModel else "")
    kind: type = request.param
    return kind


def pair_of(folder: Path, drafter: Path | None = None, **asked: Any) -> Any:
    """The pair of a folder with itself, or with another drafter."""
    return load_pair(spec_of(drafter or folder, folder), device="cpu", **asked)


def kinds(pair: Any) -> set[type]:
    return {type(pair.drafter_model), type(pair.verifier_model)}


def greedy(pair: Any) -> list[int]:
    asked = Request(
        token_ids=PROMPT, max_new_tokens=_NEW, temperature=0.0, method="speed", lenience=0.0, draft_length=3
    )
    return Engine(pair).generate(asked)[0].token_ids


def generated(folder: Path) -> list[int]:
    """What transformers writes from the same files."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    begin = torch.tensor([PROMPT])
    asked: dict[str, Any] = {"max_new_tokens": _NEW, "do_sample": False, "pad_token_id": 0}
    found: list[int] = model.generate(begin, attention_mask=torch.ones_like(begin), **asked)[0].tolist()
    return found[len(PROMPT) :]


def make(folder: Path, shape: str = "untied", kind: str = "F32", **fields: Any) -> None:
    """Write a checkpoint of one of `SHAPES`, whose config then says `fields` too."""
    write(published(shape, kind, vocabulary=300), folder)
    edit(folder / "config.json", **fields)


def edit(path: Path, **fields: Any) -> None:
    record = json.loads(path.read_text("utf-8")) if path.is_file() else {}
    path.write_text(json.dumps({name: it for name, it in (record | fields).items() if it != "absent"}))


def change(folder: Path, edit: Callable[[State], Any]) -> None:
    state = load_file(folder / "model.safetensors")
    edit(state)
    save_file(state, folder / "model.safetensors", {"format": "pt"})


def noise(*shape: int) -> torch.Tensor:
    return 0.08 * torch.randn(*shape, generator=torch.Generator().manual_seed(9))


@pytest.mark.parametrize("why", ["broken numba", "old processor", "dtype", "small"])
def test_where_fused_passes_cannot_run_or_are_not_asked_for_torch_does(
    why: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law 5. In bfloat16 only where that is asked for."""
    make(folder, "qwen2", "BF16")
    assert kinds(pair_of(folder)) == {FusedModel}
    if why == "broken numba":
        monkeypatch.setitem(sys.modules, "specviz.runtime.cpu.fused.processor", None)
    elif why == "old processor":
        monkeypatch.setattr(processor, "target_features", lambda: frozenset({"sse2"}))
    elif why == "small":
        tiny_model("llama", 300, 1, folder, dtype=torch.float32)
    pair = pair_of(folder, dtype="bfloat16" if why == "dtype" else "auto")
    assert kinds(pair) == {TorchModel}
    assert pair.drafter.dtype == pair.dtype == (torch.bfloat16 if why == "dtype" else torch.float32)
    assert why == "dtype" or greedy(pair) == generated(folder)


_OLD = {"rope_parameters": "absent"}
"""As configs were written before transformers 5."""
_MISTRAL = {"model_type": "mistral", "mlp_bias": "absent", "attention_bias": "absent"}
_SERVED = {
    **{"partial_rotary_factor": 1.0, "num_key_value_heads": None, "rms_norm_eps": 0.3, "hidden_act": "swish"},
    **{"pretraining_tp": 2, "layer_types": ["full_attention"] * 2, "torch_dtype": "bfloat16"},
    **{"is_llama_config": True, "rope_interleaved": False},
}
_YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 64}


@pytest.mark.parametrize(
    ("fields", "runner"),
    [
        ({"rope_scaling": {"type": "linear", "factor": 4.0}, "rope_theta": 100.0, **_OLD}, FusedModel),
        ({"rope_scaling": {"type": "dynamic", "factor": 4.0}, "rope_theta": 100.0, **_OLD}, TorchModel),
        ({"rope_parameters": _YARN}, FusedModel),
        ({"partial_rotary_factor": 0.5}, TorchModel),
        ({"hidden_act": "gelu"}, TorchModel),
        ({"attention_bias": True}, None),
        ({"attention_multiplier": 0.1, "residual_multiplier": 3.0, "logits_scaling": 0.2}, TorchModel),
        (_SERVED, FusedModel),
        (_MISTRAL, TorchModel),  # whose class has a window of 4096 by default
        ({"sliding_window": None, **_MISTRAL}, FusedModel),
    ],
    ids=lambda it: ",".join(it) if isinstance(it, dict) else "",
)
def test_a_trait_of_the_config_is_served_as_transformers_serves_it(
    fields: dict[str, Any], runner: type | None, folder: Path
) -> None:
    """Law 5. `runner` None: transformers finds no weights for it, and it is refused."""
    make(folder, **fields)
    if runner is None:
        assert "damaged" in refusal(spec_of(folder, folder))
        return
    pair = pair_of(folder)
    assert type(pair.verifier_model) is runner
    assert greedy(pair) == generated(folder)


_LAYER = "model.layers.0"


def _of_other_classes(state: State) -> State:
    """Tensors that a Llama model does not have: biases, norms of queries and keys, leftovers."""
    names = {name: f"{_LAYER}.self_attn.{name}_proj" for name in "qkvo"}
    found = {f"{name}.bias": noise(len(state[f"{name}.weight"])) for name in names.values()}
    found |= {f"{_LAYER}.self_attn.{name}_norm.weight": 5 * torch.rand(64) for name in "qk"}
    return found | {"model.layers.7.input_layernorm.weight": noise(192)}


def _cast(dtype: torch.dtype, dimensions: int, names: str = "") -> Callable[[State], State]:
    """Tensors of so many dimensions, those whose names have `names` in them, in another dtype."""
    return lambda state: {
        name: it.to(dtype) for name, it in state.items() if it.dim() == dimensions and names in name
    }


def _without_prefix(state: State) -> State:
    return {name.removeprefix("model."): state.pop(name) for name in list(state)}


_EDITS: dict[str, tuple[Callable[[State], State], type]] = {
    "another head": (lambda state: {"lm_head.weight": noise(300, 192)}, TorchModel),
    "the same head": (lambda state: {"lm_head.weight": 1 * state["model.embed_tokens.weight"]}, FusedModel),
    "of other classes": (_of_other_classes, FusedModel),
    "matrices in bfloat16": (_cast(torch.bfloat16, 2), FusedModel),
    "matrices in float8": (_cast(torch.float8_e4m3fn, 2), TorchModel),
    "norms in float16": (_cast(torch.float16, 1), FusedModel),
    "two formats in a product": (_cast(torch.bfloat16, 2, "k_proj"), TorchModel),
    "names without the prefix": (_without_prefix, TorchModel),
}


@pytest.mark.parametrize("edit", _EDITS)
def test_tensors_count_as_transformers_counts_them(edit: str, folder: Path) -> None:
    """Law 5: those that the model's class has count, under the names that transformers knows; others do not."""
    more, runner = _EDITS[edit]
    make(folder, "llama")
    change(folder, lambda state: state.update(more(state)))
    pair = pair_of(folder)
    assert type(pair.verifier_model) is runner
    assert greedy(pair) == generated(folder)


@pytest.mark.parametrize(
    "edit",
    [
        lambda state: state.pop("model.norm.weight"),
        lambda state: state.update({f"{_LAYER}.input_layernorm.weight": noise(64)}),
        lambda state: state.update({"lm_head.weight": state["lm_head.weight"][:290]}),
    ],
)
def test_tensors_that_are_missing_or_have_other_shapes_are_refused(
    edit: Callable[[State], Any], folder: Path
) -> None:
    """So is a quantised checkpoint that lacks one."""
    make(folder)
    change(folder, edit)
    assert "damaged" in refusal(spec_of(folder, folder))
    checkpoint = published("llama", "Q4_1", vocabulary=300)
    del checkpoint.tensors["model.norm.weight"]  # type: ignore[attr-defined]  # a dict
    write(checkpoint, folder)
    assert "damaged" in refusal(spec_of(folder, folder))


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize(
    "where",
    ["model.norm", f"{_LAYER}.input_layernorm", f"{_LAYER}.mlp.down_proj", f"{_LAYER}.self_attn.q_proj"],
)
@pytest.mark.parametrize("kind", ["Q8_0", "Q4_1", "F32"])
def test_numbers_that_are_not_finite_end_a_run(kind: str, where: str, bad: float, folder: Path) -> None:
    """They get into the logits, whatever rounds or bounds them on the way."""
    checkpoint = published("untied", kind, vocabulary=300)
    tensor = checkpoint.tensors[f"{where}.weight"]
    if tensor.dtype == torch.uint8:  # a block's scale
        tensor[:, :2] = torch.tensor([bad]).half().view(torch.uint8)
    else:
        tensor[..., 3] = bad
    write(checkpoint, folder)
    pair = pair_of(folder)
    assert kinds(pair) == {FusedModel}
    with pytest.raises(EngineError, match="not finite"):
        greedy(pair)


@pytest.mark.parametrize(
    "edit", [lambda it: it.repeat(1, 64), lambda it: it[:, :68].clone()], ids=["wide", "narrow"]
)
def test_quantised_rows_must_fit_the_config(
    edit: Callable[[torch.Tensor], torch.Tensor], folder: Path
) -> None:
    """Compiled loops would read and write beyond them."""
    checkpoint = published("untied", "Q8_0", vocabulary=300)
    name = f"{_LAYER}.mlp.down_proj.weight"
    checkpoint.tensors[name] = edit(checkpoint.tensors[name])  # type: ignore[index]  # a dict
    write(checkpoint, folder)
    assert "damaged" in refusal(spec_of(folder, folder))


@pytest.mark.parametrize(
    "change", [{"kept": -1}, {"kept": 300}, {"reads": -1}, {"reads": 200}, {"size": 199}], ids=str
)
def test_a_small_vocabulary_must_fit_its_drafter(
    change: dict[str, int], runner: type, folder: Path, tmp_path: Path
) -> None:
    make(folder)
    drafter = write(published("untied", "F32", vocabulary=change.get("size", 200)), tmp_path / "drafter")
    columns = {"kept": torch.arange(200), "reads": torch.zeros(300)}
    for name, value in change.items() if "size" not in change else ():
        columns[name][0 if value < 0 else -1] = value
    save_file({name: each.int() for name, each in columns.items()}, drafter / "vocabulary.safetensors")
    assert "damaged" in refusal(spec_of(drafter, folder))


def test_a_drafter_without_a_tokenizer_has_the_verifiers(runner: type, folder: Path, tmp_path: Path) -> None:
    """As `specviz distill` writes it, with a vocabulary of its own."""
    make(folder)
    drafter = write(published("untied", "F32", vocabulary=200), tmp_path / "drafter")
    columns = {"kept": torch.arange(200).int(), "reads": torch.arange(300).clamp_max(199).int()}
    save_file(columns, drafter / "vocabulary.safetensors")
    assert greedy(pair_of(folder, drafter)) == generated(folder)


def test_a_missing_shard_is_refused_and_one_file_goes_before_an_index(folder: Path) -> None:
    published("llama", "F32", seed=1, vocabulary=300).save(folder, 300_000)
    assert greedy(pair_of(folder)) == generated(folder)
    first = min(folder.glob("model-*.safetensors"))
    first.unlink()
    assert first.name in refusal(spec_of(folder, folder))
    make(folder, "llama")
    assert greedy(pair_of(folder)) == generated(folder)


@pytest.mark.parametrize(
    ("in_config", "in_generation_config"),
    [([5, 9], None), (5, [5, 9]), (9, "absent")],
    ids=str,
)
def test_a_text_ends_where_generate_ends_it(
    in_config: Any, in_generation_config: Any, runner: Any, folder: Path
) -> None:
    """Laws 5 and 6: generation_config.json settles the ends, or config.json where there is none. Not the tokenizer, whose end is 0."""
    make(folder)
    written = generated(folder)

    def ids(ends: Any) -> Any:
        if isinstance(ends, list):
            return [written[each] for each in ends]
        return ends if ends == "absent" else written[ends]

    edit(folder / "config.json", eos_token_id=ids(in_config))
    if in_generation_config is not None:
        edit(folder / "generation_config.json", eos_token_id=ids(in_generation_config), pad_token_id=-1)
    pair = pair_of(folder)
    assert type(pair.verifier_model) is runner
    assert greedy(pair) == generated(folder)
    assert pair.verifier.generation_config.eos_token_id == pair.verifier_model.generation_config.eos_token_id


_SAMPLING = {"do_sample": True, "temperature": 0.6, "top_p": 0.9, "top_k": 20}
_IDLE = {"min_length": 0, "num_beams": 1, "no_repeat_ngram_size": 0, "bad_words_ids": None}


def test_a_generation_config_is_followed_but_for_sampling(runner: type, folder: Path) -> None:
    make(folder)
    suppressed = sorted(set(generated(folder)[:4]))
    edit(folder / "generation_config.json", suppress_tokens=suppressed, **_SAMPLING, **_IDLE)
    assert greedy(pair_of(folder)) == generated(folder)


@pytest.mark.parametrize("field", [{"bad_words_ids": [[5, 6]]}, {"num_beams": 3}], ids=str)
def test_a_generation_config_that_cannot_be_followed_is_refused_by_its_field(
    field: dict[str, Any], folder: Path
) -> None:
    make(folder)
    edit(folder / "generation_config.json", **field)
    assert next(iter(field)) in refusal(spec_of(folder, folder))


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_drafter_may_lack_tokens_that_the_verifier_has(
    temperature: float, folder: Path, tmp_path: Path
) -> None:
    """Laws 2, 5 and 6 with fused drafting; test_pair.py has torch."""
    drafter = tmp_path / "drafter"
    shutil.copytree(folder, drafter)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    own = len(tokenizer)
    tokenizer.add_tokens([f"<{index}>" for index in range(42)])
    tokenizer.save_pretrained(folder)
    size = len(tokenizer)
    write(published("untied", "F32", vocabulary=own, seed=1), drafter)
    write(published("untied", "F32", vocabulary=size), folder)
    written = generated(folder)

    def louder(state: State) -> None:
        head = state["lm_head.weight"]
        head[own], head[own + 1] = 1.01 * head[written[2]], 1.01 * head[written[12]]

    change(folder, louder)
    edit(folder / "generation_config.json", eos_token_id=own + 1)
    pair = pair_of(folder, drafter)
    assert type(pair.drafter_model) is FusedModel
    assert pair.vocabulary_size == size
    if temperature == 0:
        assert greedy(pair) == generated(folder)
        assert own in generated(folder)
    engine, texts = Engine(pair), set[tuple[int, ...]]()
    asked: dict[str, Any] = {"max_new_tokens": 20, "temperature": temperature, "method": "cascade_opt"}
    for length in (1, 4, AUTO):
        request = Request(token_ids=[5, own, 6], draft_length=length, inspect=4, **asked)
        texts.add(tuple(engine.generate(request)[0].token_ids))
    assert len(texts) == 1
