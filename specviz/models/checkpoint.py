"""A checkpoint: a model's tensors as published, under transformers' names. Quantised tensors consist of GGUF's blocks.

It is read from safetensors or a GGUF file. In safetensors, a quantised tensor is uint8 [outputs, bytes of a row], and the file's metadata
gives its format under the key `quantised`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from huggingface_hub import split_torch_state_dict_into_shards
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor
from transformers import GenerationConfig, PretrainedConfig

from specviz.models.hub import weight_files

BLOCK = 32
"""Number of adjacent weights of a row that share a scale."""
QUANTISED = ("Q4_1", "Q8_0")
"""Formats of quantised tensors, by GGUF's names."""
_KEY = "quantised"


@dataclass(frozen=True)
class Checkpoint:
    """A model's config and tensors.

    Attributes:
        tensors: by name; quantised ones are uint8 [outputs, bytes of a row].
        formats: of the quantised tensors, by name.
        generation_config: as `from_pretrained` gives it to a model; None for a checkpoint that was not read from a folder.
    """

    config: PretrainedConfig
    tensors: Mapping[str, Tensor]
    formats: Mapping[str, str]
    generation_config: GenerationConfig | None = None

    @staticmethod
    def read(folder: Path, gguf: Path | None = None) -> Checkpoint:
        """Read the configs of a folder, and the tensors of `gguf` or else of the folder's safetensors.

        Raises:
            OSError, SafetensorError, ValueError: a file is missing or damaged.
        """
        config, generation = read_config(str(folder)), _read_generation_config(folder)
        if gguf:
            return replace(from_gguf(gguf, config), generation_config=generation)
        tensors, formats = dict[str, Tensor](), dict[str, str]()
        for path in weight_files(folder):
            with safe_open(path, framework="pt") as file:
                formats |= _formats(file)
                tensors |= {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # it is no dict
        return Checkpoint(config, tensors, formats, generation)

    def save(self, folder: Path, most_bytes: int = 1 << 40) -> None:
        """Write the config, and safetensors files of at most `most_bytes` each, to an existing folder."""
        self.config.save_pretrained(folder)
        shards = split_torch_state_dict_into_shards(dict(self.tensors), max_shard_size=most_bytes)
        for file, names in shards.filename_to_tensors.items():
            tensors = {name: self.tensors[name].contiguous() for name in names}
            formats = {name: self.formats[name] for name in names if name in self.formats}
            save_file(tensors, folder / file, {"format": "pt", _KEY: json.dumps(formats)})
        if shards.is_sharded:
            index = {"metadata": {}, "weight_map": shards.tensor_to_filename}
            (folder / "model.safetensors.index.json").write_text(json.dumps(index))

    @staticmethod
    def of(model: Any, kind: str) -> Checkpoint:
        """The weights of a transformers model. Matrices whose rows are whole blocks are rounded to `kind`, Q4_1 or Q8_0."""
        from gguf import GGMLQuantizationType
        from gguf.quants import quantize

        tensors, formats = {}, {}
        for name, tensor in model.state_dict().items():
            if name == "lm_head.weight" and model.config.tie_word_embeddings:
                continue
            tensors[name] = tensor.detach().cpu().float()
            if tensor.dim() == 2 and tensor.shape[1] % BLOCK == 0:
                levels = quantize(tensors[name].numpy(), GGMLQuantizationType[kind])
                tensors[name], formats[name] = torch.from_numpy(levels), kind
        return Checkpoint(model.config, tensors, formats)

    def floats(self, name: str) -> Tensor:
        """A tensor as floats; a quantised tensor becomes float32."""
        if name not in self.formats:
            return self.tensors[name]
        from gguf import GGMLQuantizationType
        from gguf.quants import dequantize

        kind = GGMLQuantizationType[self.formats[name]]
        return torch.from_numpy(dequantize(self.tensors[name].numpy(), kind))

    def module(self, dtype: torch.dtype, **options: Any) -> Any:
        """The transformers model with these tensors, rounded to `dtype`; `options` are arguments of `from_pretrained`.

        Raises:
            ValueError: tensors are missing.
        """
        # Imported here: it brings modelling code, which takes seconds to import.
        from transformers import MODEL_FOR_CAUSAL_LM_MAPPING

        state = {name: self.floats(name).to(dtype) for name in self.tensors}
        kind: Any = MODEL_FOR_CAUSAL_LM_MAPPING[type(self.config)]
        model, found = kind.from_pretrained(
            None, config=self.config, state_dict=state, dtype=dtype, output_loading_info=True, **options
        )
        if found["missing_keys"]:  # transformers would fill them with random numbers
            raise ValueError("the weights are damaged or incomplete")
        model.generation_config = self.generation_config or model.generation_config
        return model


def read_config(location: str, *, online: bool = False) -> PretrainedConfig:
    """The config of a folder or repository, as an object of its transformers class. The hub is asked only if `online`."""
    from transformers import AutoConfig  # imported here: it takes half a second

    return AutoConfig.from_pretrained(location, local_files_only=not online, trust_remote_code=False)


def _read_generation_config(folder: Path) -> GenerationConfig:
    """The generation config of a checkpoint's folder, as `from_pretrained` gives it to the model.

    It is derived from config.json if generation_config.json is missing or damaged.
    """
    try:
        return GenerationConfig.from_pretrained(str(folder), local_files_only=True)
    except OSError:
        record = json.loads((folder / "config.json").read_text("utf-8"))
        return GenerationConfig.from_model_config(record)


def has_safetensors(folder: Path) -> bool:
    """Whether a folder has a model's weights in safetensors."""
    return any(path.suffix == ".safetensors" for path in weight_files(folder))


def is_quantised(folder: Path) -> bool:
    """Whether a folder has quantised safetensors, which only `Checkpoint.read` understands."""
    for path in weight_files(folder) if has_safetensors(folder) else ():
        with safe_open(path, framework="pt") as file:
            if _formats(file):
                return True
    return False


def _formats(file: Any) -> dict[str, str]:
    """The formats of a safetensors file's quantised tensors, by name."""
    return dict(json.loads((file.metadata() or {}).get(_KEY, "{}")))


# ---- GGUF --------------------------------------------------------------------------------------------------

_NAMES = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_FLOATS = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


def from_gguf(path: Path, config: PretrainedConfig) -> Checkpoint:
    """Read the GGUF file of a model with this config; only the llama architecture is supported. The file stays mapped into memory."""
    from specviz.compat.gguf import TensorReader

    heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}
    tensors, formats = {}, {}
    for tensor in TensorReader(path, "c").tensors:  # torch warns of arrays that cannot be written to
        kind, name, rows = tensor.tensor_type.name, _transformers_name(tensor.name), tensor.data
        for part, count in heads.items():
            if f".{part}." in tensor.name:
                # Rotary positions rotate two adjacent outputs in GGUF, and in transformers two that are half a head apart.
                rows = rows[np.arange(len(rows)).reshape(count, -1, 2).swapaxes(1, 2).ravel()]
        tensors[name] = torch.from_numpy(rows)
        if kind in _FLOATS:
            tensors[name] = tensors[name].view(_FLOATS[kind])
        else:
            formats[name] = kind
    return Checkpoint(config, tensors, formats)


def _transformers_name(name: str) -> str:
    if name.startswith("blk."):
        _, layer, part, kind = name.split(".")
        return f"model.layers.{layer}.{_LAYER_NAMES[part]}.{kind}"
    part, _, kind = name.partition(".")
    return f"{_NAMES[part]}.{kind}"
