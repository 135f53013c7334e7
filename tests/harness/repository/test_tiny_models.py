"""The files of `tiny_models/` are those that make.py makes, and carry what the cells rely on.

No torch and no transformers here: safetensors headers and JSON are read as they are. That releases
of transformers read the files rightly is `tiny_models/check.py`'s business, in their own stacks.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import math
import shutil
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.harness.conftest import ROOT

TINY_MODELS = ROOT / "tiny_models"
NAMES = ("tiny-mistral", "tiny-qwen2")
FILES = {
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer_config.json",
}
LIMIT = 1_000_000


def read_json(model: str, file: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((TINY_MODELS / model / file).read_text("utf-8"))
    return content


def read_tensors(model: str) -> dict[str, tuple[list[int], tuple[float, ...]]]:
    """Name to shape and values, straight from the container."""
    blob = (TINY_MODELS / model / "model.safetensors").read_bytes()
    (length,) = struct.unpack_from("<Q", blob)
    header = json.loads(blob[8 : 8 + length])
    assert header.pop("__metadata__") == {"format": "pt"}
    found = {}
    for name, entry in header.items():
        assert entry["dtype"] == "F32", name
        start, end = (8 + length + offset for offset in entry["data_offsets"])
        assert end - start == 4 * math.prod(entry["shape"]), name
        found[name] = (entry["shape"], struct.unpack(f"<{(end - start) // 4}f", blob[start:end]))
    return found


@pytest.fixture(scope="module")
def make() -> Iterator[ModuleType]:
    """The generating script, which is no part of any package."""
    spec = importlib.util.spec_from_file_location("tiny_models_make", TINY_MODELS / "make.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def test_every_file_has_its_checksum_and_no_other_is_there() -> None:
    listed = {}
    for line in (TINY_MODELS / "SHA256SUMS").read_text("utf-8").splitlines():
        digest, path = line.split("  ")
        listed[path] = digest
    assert set(listed) == {f"{name}/{file}" for name in NAMES for file in FILES}
    for name in NAMES:
        assert {file.name for file in (TINY_MODELS / name).iterdir()} == FILES
    for path, digest in listed.items():
        assert hashlib.sha256((TINY_MODELS / path).read_bytes()).hexdigest() == digest, path


def test_both_models_together_stay_under_a_megabyte() -> None:
    sizes = [(TINY_MODELS / name / file).stat().st_size for name in NAMES for file in FILES]
    assert sum(sizes) < LIMIT


@pytest.mark.parametrize("name", NAMES)
def test_config_is_of_the_family_and_readable_by_old_releases(name: str) -> None:
    config = read_json(name, "config.json")
    family = {"tiny-mistral": "mistral", "tiny-qwen2": "qwen2"}[name]
    assert config["model_type"] == family
    assert config["architectures"] == [f"{family.capitalize()}ForCausalLM"]
    assert config["torch_dtype"] == "float32"
    assert config["rope_theta"] > 0
    assert config["num_key_value_heads"] < config["num_attention_heads"]
    assert config["num_attention_heads"] % config["num_key_value_heads"] == 0
    assert config["max_position_embeddings"] == 512


def test_mistral_has_a_sliding_window_and_a_head_of_its_own() -> None:
    config = read_json("tiny-mistral", "config.json")
    assert 0 < config["sliding_window"] < config["max_position_embeddings"]
    assert config["tie_word_embeddings"] is False
    tensors = read_tensors("tiny-mistral")
    assert tensors["lm_head.weight"] != tensors["model.embed_tokens.weight"]
    assert not any(tensor.endswith(".bias") for tensor in tensors)


def test_qwen2_has_tied_embeddings_and_qkv_biases() -> None:
    config = read_json("tiny-qwen2", "config.json")
    assert config["tie_word_embeddings"] is True
    assert config["use_sliding_window"] is False
    tensors = read_tensors("tiny-qwen2")
    assert "lm_head.weight" not in tensors
    biases = {tensor for tensor in tensors if tensor.endswith(".bias")}
    assert biases == {
        f"model.layers.{layer}.self_attn.{projection}_proj.bias"
        for layer in range(config["num_hidden_layers"])
        for projection in "qkv"
    }


@pytest.mark.parametrize("name", NAMES)
def test_tensors_have_the_shapes_of_the_config(name: str) -> None:
    config, tensors = read_json(name, "config.json"), read_tensors(name)
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    keys = config["num_key_value_heads"] * (hidden // heads)
    assert tensors["model.embed_tokens.weight"][0] == [config["vocab_size"], hidden]
    for layer in range(config["num_hidden_layers"]):
        attention = f"model.layers.{layer}.self_attn"
        assert tensors[f"{attention}.q_proj.weight"][0] == [hidden, hidden]
        assert tensors[f"{attention}.k_proj.weight"][0] == [keys, hidden]
        assert tensors[f"{attention}.v_proj.weight"][0] == [keys, hidden]


@pytest.mark.parametrize("name", NAMES)
def test_no_tensor_looks_newly_initialized(name: str) -> None:
    for tensor, (_, values) in read_tensors(name).items():
        assert all(map(math.isfinite, values)), tensor
        mean = sum(values) / len(values)
        std = (sum((value - mean) ** 2 for value in values) / len(values)) ** 0.5
        # transformers initializes norms to 1, biases to 0 and matrices with 0.02.
        assert 0.05 < std < 0.3, tensor
        centre = 1.0 if "norm" in tensor else 0.0
        assert abs(mean - centre) < 0.1, tensor


@pytest.mark.parametrize("name", NAMES)
def test_special_tokens_agree_in_every_file(name: str) -> None:
    config = read_json(name, "config.json")
    tokenizer = read_json(name, "tokenizer.json")
    settings = read_json(name, "tokenizer_config.json")
    ids = dict(tokenizer["model"]["vocab"])
    ids |= {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
    assert sorted(ids.values()) == list(range(config["vocab_size"]))
    assert all(token["special"] for token in tokenizer["added_tokens"])
    decoder = {int(number): token for number, token in settings["added_tokens_decoder"].items()}
    assert {token["content"]: number for number, token in decoder.items()} == {
        token["content"]: token["id"] for token in tokenizer["added_tokens"]
    }
    assert ids[settings["pad_token"]] == config["pad_token_id"]
    assert ids[settings["eos_token"]] == config["eos_token_id"]
    assert config["pad_token_id"] != config["eos_token_id"]
    generation = read_json(name, "generation_config.json")
    assert generation == {key: config[key] for key in generation}
    assert set(generation) == {"bos_token_id", "eos_token_id", "pad_token_id"}


@pytest.mark.parametrize("name", NAMES)
def test_tokenizer_pads_left_and_returns_what_generate_takes(name: str) -> None:
    settings = read_json(name, "tokenizer_config.json")
    assert settings["padding_side"] == "left"
    assert settings["model_input_names"] == ["input_ids", "attention_mask"]
    assert settings["tokenizer_class"] == "PreTrainedTokenizerFast"
    # Lists of pairs came with tokenizers 0.20; older releases read "a b" only.
    assert all(
        isinstance(merge, str) for merge in read_json(name, "tokenizer.json")["model"]["merges"]
    )


@pytest.mark.parametrize(
    ("name", "special", "marks"),
    [
        (
            "tiny-mistral",
            {"<s>", "</s>", "<unk>", "<pad>", "[INST]", "[/INST]"},
            ("[INST]", "[/INST]"),
        ),
        (
            "tiny-qwen2",
            {"<|endoftext|>", "<|im_start|>", "<|im_end|>"},
            ("<|im_start|>", "<|im_end|>"),
        ),
    ],
)
def test_chat_template_and_special_tokens_are_the_familys(
    name: str, special: set[str], marks: tuple[str, ...]
) -> None:
    added = read_json(name, "tokenizer.json")["added_tokens"]
    assert {token["content"] for token in added} == special
    template = read_json(name, "tokenizer_config.json")["chat_template"]
    assert all(mark in template for mark in marks)


def test_configs_and_weights_are_made_again_byte_for_byte(make: ModuleType) -> None:
    for model in make.MODELS:
        folder = TINY_MODELS / model.name
        assert make.as_json(make.config(model)) == (folder / "config.json").read_bytes()
        assert make.safetensors(model) == (folder / "model.safetensors").read_bytes()


def test_every_file_is_made_again_byte_for_byte(make: ModuleType) -> None:
    pytest.importorskip("tokenizers", reason="trains the tokenizers again")
    assert make.main(["--check"]) == 0


def test_check_names_each_file_that_drifted(make: ModuleType, tmp_path: Path) -> None:
    files = {
        path.relative_to(TINY_MODELS).as_posix(): path.read_bytes()
        for name in NAMES
        for path in (TINY_MODELS / name).iterdir()
    }
    for name in NAMES:
        shutil.copytree(TINY_MODELS / name, tmp_path / name)
    assert make.drift(files, tmp_path) == []
    weights = tmp_path / "tiny-mistral" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\0")
    (tmp_path / "tiny-qwen2" / "tokenizer.json").unlink()
    (tmp_path / "tiny-qwen2" / "vocab.json").write_text("{}")
    assert make.drift(files, tmp_path) == [
        "tiny-mistral/model.safetensors: differs from what make.py makes",
        "tiny-qwen2/tokenizer.json: missing",
        "tiny-qwen2/vocab.json: not made by make.py",
    ]
