#!/usr/bin/env python3
"""Make tiny-mistral and tiny-qwen2, bit for bit, from families.py and corpus.txt.

Every file under `tiny_models/tiny-*/` and `tiny_models/SHA256SUMS` is generated: change this script
and run it, never edit them by hand.

    python tiny_models/make.py            write every file again
    python tiny_models/make.py --check    exit 1, naming each file that differs, if they drifted

The models stand for the real families in every cell, so they carry what makes those families break:
grouped-query attention in both, a sliding window in Mistral, tied embeddings and QKV biases in
Qwen2, pad tokens that differ from eos, and each family's chat template. Norms are near 1 but not 1
and biases are not 0, so that a tensor which was lost and initialised anew differs from the file.

What makes the bytes the same everywhere:

* Weights are sums of 16-bit integers drawn from SHAKE-256 of the model's and the tensor's name.
  `torch.randn` would not do: its last bit depends on the CPU's vector unit, and its stream on the
  release. The safetensors container is written here too (a length, a JSON header, the data), so
  the weights need the standard library only.
* JSON is written here with sorted keys, not by a release of transformers.
* Tokenizers are trained with the `tokenizers` library on corpus.txt. Its BPE trainer breaks
  ties by token id, so runs agree; releases promise nothing of the kind. The files were made with
  tokenizers 0.23.3, and 0.19.1, 0.20.3, 0.21.4, 0.22.2 and 0.23.3 were seen to give the same bytes.
  Merges are written as "a b": releases before tokenizers 0.20 cannot read the newer list form.

`tiny_models/check.py` proves in a stack's own interpreter that the result loads, generates and
learns there (seen with torch 2.13.0 and the transformers releases named in its docstring).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import struct
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))  # a script, so only its own folder is there

from tiny_models.families import (  # noqa: E402
    LAYERS,
    MODELS,
    POSITIONS,
    TinyModel,
    byte_level,
)

#: Own sentences, one a line: English, chat and arithmetic, as the prompts of the reproductions are.
CORPUS = (HERE / "corpus.txt").read_text(encoding="utf-8").splitlines()


def as_json(value: object) -> bytes:
    return (json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n").encode()


# Configuration -----------------------------------------------------------------------------------


def special_ids(model: TinyModel) -> dict[str, int]:
    # Qwen2 has no bos token, yet its configs name <|endoftext|>, which is its pad token, as bos.
    return {
        "bos_token_id": model.token_id(model.bos or model.pad),
        "eos_token_id": model.token_id(model.eos),
        "pad_token_id": model.token_id(model.pad),
    }


def config(model: TinyModel) -> dict[str, Any]:
    # `torch_dtype` and `rope_theta` are the forms before transformers 4.56 and 5.0; newer releases
    # read them, older ones do not read `dtype` and `rope_parameters`.
    return {
        "architectures": [model.architecture],
        "model_type": model.model_type,
        "vocab_size": model.vocab_size,
        "hidden_size": model.hidden_size,
        "intermediate_size": model.intermediate_size,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": model.heads,
        "num_key_value_heads": model.kv_heads,
        "max_position_embeddings": POSITIONS,
        "hidden_act": "silu",
        "attention_dropout": 0.0,
        "initializer_range": 0.02,
        "tie_word_embeddings": model.tied,
        "torch_dtype": "float32",
        "use_cache": True,
        **special_ids(model),
        **model.family,
    }


# Weights -----------------------------------------------------------------------------------------


def parameters(model: TinyModel) -> dict[str, tuple[tuple[int, ...], float, float]]:
    """Name, as transformers has it, to shape, mean and standard deviation."""
    hidden, inner = model.hidden_size, model.intermediate_size
    query, key = model.heads * model.head_dim, model.kv_heads * model.head_dim
    matrix = model.matrix_std
    norm = ((hidden,), 1.0, 0.1)
    table = ((model.vocab_size, hidden), 0.0, model.embedding_std)
    found: dict[str, tuple[tuple[int, ...], float, float]] = {"model.embed_tokens.weight": table}
    for index in range(LAYERS):
        layer = f"model.layers.{index}"
        found[f"{layer}.input_layernorm.weight"] = norm
        found[f"{layer}.post_attention_layernorm.weight"] = norm
        for projection, width in (("q_proj", query), ("k_proj", key), ("v_proj", key)):
            found[f"{layer}.self_attn.{projection}.weight"] = ((width, hidden), 0.0, matrix)
            if model.qkv_bias:
                found[f"{layer}.self_attn.{projection}.bias"] = ((width,), 0.0, 0.1)
        found[f"{layer}.self_attn.o_proj.weight"] = ((hidden, query), 0.0, matrix)
        found[f"{layer}.mlp.gate_proj.weight"] = ((inner, hidden), 0.0, matrix)
        found[f"{layer}.mlp.up_proj.weight"] = ((inner, hidden), 0.0, matrix)
        found[f"{layer}.mlp.down_proj.weight"] = ((hidden, inner), 0.0, matrix)
    found["model.norm.weight"] = norm
    if not model.tied:
        found["lm_head.weight"] = table
    return found


def draw(seed: str, count: int, mean: float, std: float) -> bytes:
    """`count` little-endian float32, near normal (sums of four uniforms), the same on any CPU."""
    stream = hashlib.shake_256(seed.encode()).digest(count * 8)
    words = struct.unpack(f"<{count * 4}H", stream)
    middle = 4 * 0xFFFF / 2
    scale = std / (4 * (0x10000**2 - 1) / 12) ** 0.5
    values = [mean + scale * (sum(words[i : i + 4]) - middle) for i in range(0, count * 4, 4)]
    return struct.pack(f"<{count}f", *values)


def safetensors(model: TinyModel) -> bytes:
    # transformers refuses a file whose metadata lacks the format.
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    data = bytearray()
    for name, (shape, mean, std) in sorted(parameters(model).items()):
        count = 1
        for size in shape:
            count *= size
        start = len(data)
        data += draw(f"{model.name}/{name}", count, mean, std)
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [start, len(data)]}
    # Compact, and padded with spaces to 8 bytes, so that tensors are aligned in a mapped file.
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + bytes(data)


# Tokenizer ---------------------------------------------------------------------------------------


def train(model: TinyModel) -> tuple[list[str], list[str]]:
    """The learnt tokens in order of id, and the merges as "a b"."""
    # Imported here: the weights and configs are made, and tested, without the library.
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    split: dict[str, Any] = {
        "version": "1.0",
        "added_tokens": [],
        "normalizer": model.normalizer,
        "pre_tokenizer": model.pre_tokenizer,
        "post_processor": None,
        "decoder": None,
        "model": json.loads(Tokenizer(models.BPE()).to_str())["model"],
    }
    tokenizer = Tokenizer.from_str(json.dumps(split))
    trainer = trainers.BpeTrainer(
        vocab_size=model.vocab_size - len(model.special),
        # All 256 bytes: any text can be encoded, and no unknown token is needed.
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    learnt = json.loads(tokenizer.to_str())["model"]
    tokens = sorted(learnt["vocab"], key=learnt["vocab"].__getitem__)
    if len(tokens) != model.vocab_size - len(model.special):
        raise SystemExit(f"{model.name}: the corpus gives {len(tokens)} tokens only; add sentences")
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in learnt["merges"]]
    return tokens, merges


def added_token(token: str) -> dict[str, Any]:
    return {
        "content": token,
        "lstrip": False,
        "normalized": False,
        "rstrip": False,
        "single_word": False,
        "special": True,
    }


def post_processor(model: TinyModel) -> dict[str, Any]:
    if not (model.add_bos and model.bos):
        return byte_level(use_regex=False) | {"trim_offsets": False}
    bos = {"SpecialToken": {"id": model.bos, "type_id": 0}}
    first, second = ({"Sequence": {"id": which, "type_id": 0}} for which in "AB")
    return {
        "type": "TemplateProcessing",
        "single": [bos, first],
        "pair": [bos, first, bos, second],
        "special_tokens": {
            model.bos: {
                "id": model.bos,
                "ids": [model.token_id(model.bos)],
                "tokens": [model.bos],
            }
        },
    }


def tokenizer_json(model: TinyModel) -> dict[str, Any]:
    tokens, merges = train(model)
    in_vocab = [*model.special, *tokens] if model.special_first else tokens
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [added_token(t) | {"id": model.token_id(t)} for t in model.special],
        "normalizer": model.normalizer,
        "pre_tokenizer": model.pre_tokenizer,
        "post_processor": post_processor(model),
        "decoder": byte_level(use_regex=True),
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": "",
            "end_of_word_suffix": "",
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {token: number for number, token in enumerate(in_vocab)},
            "merges": merges,
        },
    }


def special_tokens_map(model: TinyModel) -> dict[str, Any]:
    named = {"bos": model.bos, "eos": model.eos, "pad": model.pad, "unk": model.unk}
    others = [token for token in model.special if token not in named.values()]
    return {f"{role}_token": token for role, token in named.items() if token is not None} | {
        "additional_special_tokens": others
    }


def tokenizer_config(model: TinyModel) -> dict[str, Any]:
    roles = {"bos_token": model.bos, "unk_token": model.unk}
    return {
        **roles,
        **special_tokens_map(model),
        "added_tokens_decoder": {str(model.token_id(t)): added_token(t) for t in model.special},
        "chat_template": model.chat_template,
        "clean_up_tokenization_spaces": False,
        # token_type_ids, which the class would return otherwise, break `generate`.
        "model_input_names": ["input_ids", "attention_mask"],
        "model_max_length": POSITIONS,
        "padding_side": "left",
        # Reads tokenizer.json as it is. transformers 5.23 prefers Qwen2's own class, which builds
        # the same pipeline anew: check.py compares the tokens.
        "tokenizer_class": "PreTrainedTokenizerFast",
    }


# Files -------------------------------------------------------------------------------------------


def build() -> dict[str, bytes]:
    """Every generated file: its path below `tiny_models/`, and its bytes."""
    files: dict[str, bytes] = {}
    for model in MODELS:
        files[f"{model.name}/config.json"] = as_json(config(model))
        files[f"{model.name}/generation_config.json"] = as_json(special_ids(model))
        files[f"{model.name}/model.safetensors"] = safetensors(model)
        files[f"{model.name}/special_tokens_map.json"] = as_json(special_tokens_map(model))
        files[f"{model.name}/tokenizer.json"] = as_json(tokenizer_json(model))
        files[f"{model.name}/tokenizer_config.json"] = as_json(tokenizer_config(model))
    sums = [f"{hashlib.sha256(files[path]).hexdigest()}  {path}\n" for path in sorted(files)]
    return files | {"SHA256SUMS": "".join(sums).encode()}


def drift(files: dict[str, bytes], root: Path) -> list[str]:
    """One sentence for each file under `root` that is not what this script makes."""
    found = []
    for path, content in sorted(files.items()):
        if not (root / path).is_file():
            found.append(f"{path}: missing")
        elif (root / path).read_bytes() != content:
            found.append(f"{path}: differs from what make.py makes")
    for model in MODELS:
        for file in sorted((root / model.name).rglob("*")):
            path = file.relative_to(root).as_posix()
            if file.is_file() and path not in files:
                found.append(f"{path}: not made by make.py")
    return found


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Make tiny-mistral and tiny-qwen2.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 on any drift")
    options = parser.parse_args(arguments)
    files = build()
    if options.check:
        found = drift(files, HERE)
        for line in found:
            print(line, file=sys.stderr)
        return 1 if found else 0
    for path, content in files.items():
        (HERE / path).parent.mkdir(exist_ok=True)
        (HERE / path).write_bytes(content)
    print(f"wrote {len(files)} files, {sum(map(len, files.values()))} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
