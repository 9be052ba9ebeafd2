"""Who gets a fused pass: law 5 for each trait of a checkpoint that fused passes have, or leave to torch."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from specviz.engine.engine import Engine
from specviz.engine.pair import Pair
from specviz.errors import PairError
from specviz.models.loading import load_pair
from specviz.models.registry import HubSource, PairSpec
from specviz.runtime.cpu.fused.runner import FusedModel
from specviz.runtime.model_runner import TorchModel
from specviz.schema.settings import AUTO, Request
from tests.support.checkpoints import published, write
from tests.support.tiny import tiny_tokenizer

PROMPT = [5, 6, 7, 8]
_NEW = 24
State = dict[str, torch.Tensor]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a tokenizer and nothing else yet."""
    tiny_tokenizer(tmp_path / "model")
    return tmp_path / "model"


def pair_of(folder: Path, drafter: Path | None = None) -> Any:
    """The pair of a folder with itself, or with another drafter."""
    spec = PairSpec(
        key="folder",
        title="Folder",
        about="",
        drafter=HubSource(str(drafter or folder)),
        verifier=HubSource(str(folder)),
        drafter_name="it",
        verifier_name="it",
        drafter_parameters=1,
        verifier_parameters=1,
    )
    return load_pair(spec, device="cpu", kind=Pair)


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


@pytest.mark.parametrize("shape", ["llama", "untied", "llama3", "qwen2", "qwen3"])
@pytest.mark.parametrize("kind", ["F32", "BF16"])
def test_a_fused_pass_writes_what_transformers_writes(shape: str, kind: str, folder: Path) -> None:
    make(folder, shape, kind)
    pair = pair_of(folder)
    assert type(pair.verifier_model) is FusedModel
    assert greedy(pair) == generated(folder)


_OLD = {"rope_parameters": "absent"}
"""As configs were written before transformers 5."""


@pytest.mark.parametrize(
    ("fields", "runner"),
    [
        ({"rope_scaling": None, "rope_theta": 100.0, **_OLD}, FusedModel),
        ({"rope_scaling": {"type": "linear", "factor": 4.0}, "rope_theta": 100.0, **_OLD}, FusedModel),
        ({"rope_scaling": {"type": "dynamic", "factor": 4.0}, "rope_theta": 100.0, **_OLD}, TorchModel),
        ({"partial_rotary_factor": 0.5}, TorchModel),
        ({"partial_rotary_factor": 1.0}, FusedModel),
        ({"head_dim": None, "hidden_size": 64}, None),
        ({"head_dim": "absent", "hidden_size": 192, "num_attention_heads": 4}, None),
        ({"num_key_value_heads": None}, FusedModel),
        ({"rms_norm_eps": 0.3}, FusedModel),
        ({"rms_norm_eps": "absent"}, FusedModel),
        ({"hidden_act": "gelu"}, TorchModel),
        ({"hidden_act": "swish"}, FusedModel),
        ({"attention_bias": True}, None),
        ({"mlp_bias": True}, None),
        ({"embedding_multiplier": 7.0}, TorchModel),
        ({"attention_multiplier": 0.1, "residual_multiplier": 3.0, "logits_scaling": 0.2}, TorchModel),
        ({"final_logit_softcapping": 0.5, "attn_logit_softcapping": 0.5}, TorchModel),
        ({"query_pre_attn_scalar": 4}, TorchModel),
        ({"pretraining_tp": 2}, FusedModel),
        ({"layer_types": ["full_attention"] * 2}, FusedModel),
        ({"torch_dtype": "bfloat16", "is_llama_config": True, "rope_interleaved": False}, FusedModel),
    ],
    ids=lambda it: ",".join(it) if isinstance(it, dict) else "",
)
def test_a_trait_of_the_config_is_served_as_transformers_serves_it(
    fields: dict[str, Any], runner: type | None, folder: Path
) -> None:
    """Law 5. `runner` None: transformers finds no weights for it, and it is refused."""
    make(folder, **fields)
    if runner is None:
        with pytest.raises(PairError, match=r"it are damaged or incomplete"):
            pair_of(folder)
        return
    pair = pair_of(folder)
    assert type(pair.verifier_model) is runner
    assert greedy(pair) == generated(folder)


def test_layers_with_a_sliding_window_run_on_torch(folder: Path) -> None:
    make(folder, model_type="mistral", sliding_window=3, mlp_bias="absent", attention_bias="absent")
    pair = pair_of(folder)
    assert type(pair.verifier_model) is TorchModel
    assert greedy(pair) == generated(folder)


@pytest.mark.parametrize("window", ["absent", None])
def test_the_default_of_a_class_counts_where_the_config_is_silent(window: Any, folder: Path) -> None:
    """Mistral's window is 4096 unless config.json says that there is none."""
    fields = {"sliding_window": window, "mlp_bias": "absent", "attention_bias": "absent"}
    make(folder, model_type="mistral", **fields)
    assert type(pair_of(folder).verifier_model) is (TorchModel if window == "absent" else FusedModel)


_LAYER = "model.layers.0"


def another_head(state: State) -> None:
    state["lm_head.weight"] = noise(300, 192)


def same_head(state: State) -> None:
    state["lm_head.weight"] = state["model.embed_tokens.weight"].clone()


def norms_of_queries(state: State) -> None:
    state |= {f"{_LAYER}.self_attn.{name}_norm.weight": 5 * torch.rand(64) for name in "qk"}


def biases(state: State) -> None:
    rows = {name: len(state[f"{_LAYER}.self_attn.{name}_proj.weight"]) for name in "qkv"}
    state |= {f"{_LAYER}.self_attn.{name}_proj.bias": noise(count) for name, count in rows.items()}
    state[f"{_LAYER}.self_attn.o_proj.bias"] = noise(192)


def leftovers(state: State) -> None:
    state["model.rotary_emb.inv_freq"] = torch.rand(32)
    state[f"{_LAYER}.self_attn.q_proj.lora_A.weight"] = noise(8, 192)
    state["model.layers.7.input_layernorm.weight"] = noise(192)


def half_precision_matrices(state: State) -> None:
    state |= {name: it.bfloat16() for name, it in state.items() if it.dim() == 2}


def half_precision_norms(state: State) -> None:
    state |= {name: it.half() for name, it in state.items() if it.dim() == 1}


def two_formats_in_a_product(state: State) -> None:
    state[f"{_LAYER}.self_attn.k_proj.weight"] = state[f"{_LAYER}.self_attn.k_proj.weight"].bfloat16()


def double_precision(state: State) -> None:
    state |= {name: it.double() for name, it in state.items()}


def without_prefix(state: State) -> None:
    for name in list(state):
        state[name.removeprefix("model.")] = state.pop(name)


@pytest.mark.parametrize(
    ("edit", "runner"),
    [
        (another_head, TorchModel),
        (same_head, FusedModel),
        (norms_of_queries, FusedModel),
        (biases, FusedModel),
        (leftovers, FusedModel),
        (half_precision_matrices, FusedModel),
        (half_precision_norms, FusedModel),
        (two_formats_in_a_product, TorchModel),
        (without_prefix, TorchModel),
    ],
)
def test_tensors_count_as_transformers_counts_them(
    edit: Callable[[State], Any], runner: type, folder: Path
) -> None:
    """Law 5: those that the model's class has count, under the names that transformers knows; others do not."""
    make(folder, "llama")
    change(folder, edit)
    pair = pair_of(folder)
    assert type(pair.verifier_model) is runner
    assert greedy(pair) == generated(folder)


def no_norm(state: State) -> None:
    del state["model.norm.weight"]


def no_layer(state: State) -> None:
    for name in [name for name in state if name.startswith("model.layers.1")]:
        del state[name]


def no_head(state: State) -> None:
    del state["lm_head.weight"]


def narrow_matrix(state: State) -> None:
    state[f"{_LAYER}.mlp.up_proj.weight"] = noise(192, 128)


def short_vocabulary(state: State) -> None:
    state |= {name: state[name][:290] for name in ("model.embed_tokens.weight", "lm_head.weight")}


def short_norm(state: State) -> None:
    state[f"{_LAYER}.input_layernorm.weight"] = noise(64)


@pytest.mark.parametrize("edit", [no_norm, no_layer, no_head, narrow_matrix, short_vocabulary, short_norm])
def test_tensors_that_are_missing_or_have_other_shapes_are_refused_in_a_sentence(
    edit: Callable[[State], Any], folder: Path
) -> None:
    make(folder)
    change(folder, edit)
    with pytest.raises(PairError, match=r"it are damaged or incomplete"):
        pair_of(folder)


def test_a_quantised_checkpoint_that_lacks_a_tensor_is_refused(folder: Path) -> None:
    checkpoint = published("llama", "Q4_1", vocabulary=300)
    del checkpoint.tensors["model.norm.weight"]  # type: ignore[attr-defined]  # a dict
    write(checkpoint, folder)
    with pytest.raises(PairError, match=r"it are damaged or incomplete"):
        pair_of(folder)


@pytest.mark.parametrize("runner", ["", "torch"])
def test_a_missing_shard_is_refused_in_a_sentence(
    runner: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECVIZ_CPU_RUNNER", runner)
    published("llama", "F32", vocabulary=300).save(folder, 300_000)
    assert greedy(pair_of(folder)) == generated(folder)
    next(iter(sorted(folder.glob("model-*.safetensors")))).unlink()
    with pytest.raises(PairError, match=r"it is incomplete: model-00001-of-\d+\.safetensors"):
        pair_of(folder)


def test_one_file_of_weights_goes_before_an_index_of_shards(folder: Path) -> None:
    published("llama", "F32", seed=1, vocabulary=300).save(folder, 300_000)
    make(folder, "llama")
    assert greedy(pair_of(folder)) == generated(folder)


@pytest.mark.parametrize("runner", ["", "torch"])
@pytest.mark.parametrize(
    ("in_config", "in_generation_config"),
    [(3, None), ([3, 17], None), (3, [3, 17]), (17, 3), (17, "absent"), (None, [17])],
    ids=str,
)
def test_a_text_ends_where_generate_ends_it(
    in_config: Any, in_generation_config: Any, runner: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Laws 5 and 6: generation_config.json settles the ends, or config.json where there is none. Not the tokenizer, whose end is 0."""
    monkeypatch.setenv("SPECVIZ_CPU_RUNNER", runner)
    make(folder)
    written = generated(folder)
    ids = {3: written[5], 17: written[9], None: None, "absent": "absent"}

    def placed(ends: Any) -> Any:
        return [ids[each] for each in ends] if isinstance(ends, list) else ids[ends]

    edit(folder / "config.json", eos_token_id=placed(in_config))
    if in_generation_config is not None:
        edit(folder / "generation_config.json", eos_token_id=placed(in_generation_config), pad_token_id=-1)
    pair = pair_of(folder)
    assert type(pair.verifier_model) is (TorchModel if runner else FusedModel)
    assert greedy(pair) == generated(folder)
    assert pair.verifier.generation_config.eos_token_id == pair.verifier_model.generation_config.eos_token_id


@pytest.mark.parametrize("runner", ["", "torch"])
def test_suppressed_tokens_are_never_written(
    runner: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECVIZ_CPU_RUNNER", runner)
    make(folder)
    edit(folder / "generation_config.json", suppress_tokens=sorted(set(generated(folder)[:4])))
    assert greedy(pair_of(folder)) == generated(folder)


@pytest.mark.parametrize("runner", ["", "torch"])
@pytest.mark.parametrize(
    "field",
    [
        {"bad_words_ids": [[5, 6]]},
        {"min_new_tokens": 4},
        {"forced_bos_token_id": 0},
        {"begin_suppress_tokens": [7]},
        {"no_repeat_ngram_size": 2},
        {"num_beams": 3},
    ],
    ids=str,
)
def test_a_generation_config_that_cannot_be_followed_is_refused_by_its_field(
    field: dict[str, Any], runner: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECVIZ_CPU_RUNNER", runner)
    make(folder)
    edit(folder / "generation_config.json", **field)
    with pytest.raises(PairError, match=next(iter(field))):
        pair_of(folder)


def test_sampling_and_what_has_no_effect_in_a_generation_config_are_no_obstacle(folder: Path) -> None:
    make(folder)
    fields = {
        "do_sample": True,
        "temperature": 0.6,
        "top_p": 0.9,
        "top_k": 20,
        "min_length": 0,
        "num_beams": 1,
    }
    edit(folder / "generation_config.json", **fields, no_repeat_ngram_size=0, bad_words_ids=None)
    assert greedy(pair_of(folder)) == generated(folder)


def added(folder: Path, *pieces: str) -> int:
    """A folder's tokenizer with further tokens; returns how many ids it has."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_tokens(list(pieces))
    tokenizer.save_pretrained(folder)
    return len(tokenizer)


@pytest.mark.parametrize("runner", ["", "torch"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_drafter_may_lack_tokens_that_the_verifier_has(
    temperature: float, runner: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Laws 2, 5 and 6: on either runner, and with one that drafts by itself."""
    monkeypatch.setenv("SPECVIZ_CPU_RUNNER", runner)
    drafter = tmp_path / "drafter"
    shutil.copytree(folder, drafter)
    own = len(AutoTokenizer.from_pretrained(folder))
    size = added(folder, "<tool>", "<|over|>", *(f"<{index}>" for index in range(40)))
    write(published("untied", "F32", vocabulary=own, seed=1), drafter)
    write(published("untied", "F32", vocabulary=size), folder)
    written = generated(folder)

    def louder(state: State) -> None:
        head = state["lm_head.weight"]
        head[own], head[own + 1] = 1.01 * head[written[2]], 1.01 * head[written[12]]

    change(folder, louder)
    edit(folder / "generation_config.json", eos_token_id=own + 1)
    pair = pair_of(folder, drafter)
    assert type(pair.drafter_model) is (TorchModel if runner else FusedModel)
    assert pair.vocabulary_size == size
    if temperature == 0:
        assert greedy(pair) == generated(folder)
        assert own in generated(folder)
    engine, texts = Engine(pair), set[tuple[int, ...]]()
    asked: dict[str, Any] = {"max_new_tokens": 40, "temperature": temperature, "method": "cascade_opt"}
    for length in (1, 4, AUTO):
        request = Request(token_ids=[5, own, 6], draft_length=length, inspect=4, **asked)
        texts.add(tuple(engine.generate(request)[0].token_ids))
    assert len(texts) == 1
