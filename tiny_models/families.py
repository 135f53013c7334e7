"""What makes the tiny models those of their families: sizes, special tokens, chat templates.

`tiny_models/make.py` makes every file from this and corpus.txt.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

# `raise_exception` is a function that transformers gives to every template.
MISTRAL_TEMPLATE = (
    "{{ bos_token }}"
    "{% if messages[0]['role'] == 'system' %}"
    "{% set system = messages[0]['content'] + '\n\n' %}{% set turns = messages[1:] %}"
    "{% else %}{% set system = '' %}{% set turns = messages %}{% endif %}"
    "{% for message in turns %}"
    "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Roles must alternate user/assistant/user/assistant/...') }}{% endif %}"
    "{% if message['role'] == 'user' %}"
    "{{ '[INST] ' + (system if loop.first else '') + message['content'] + ' [/INST]' }}"
    "{% else %}{{ ' ' + message['content'] + eos_token }}{% endif %}"
    "{% endfor %}"
)
QWEN2_TEMPLATE = (
    "{% if messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n' }}{% endif %}"
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
#: How Qwen2 splits text before BPE: digits one by one, contractions, words, newlines.
QWEN2_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@dataclass(frozen=True)
class TinyModel:
    """What distinguishes one of the two models; the rest follows."""

    name: str
    model_type: str
    architecture: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    heads: int
    kv_heads: int
    tied: bool
    qkv_bias: bool
    family: dict[str, Any]  # entries of config.json that only this architecture has
    embedding_std: float
    matrix_std: float
    special: tuple[str, ...]
    special_first: bool  # Mistral numbers special tokens from 0, Qwen2 after everything else
    bos: str | None
    eos: str
    pad: str
    unk: str | None
    add_bos: bool  # encoding puts bos in front, as Mistral's tokenizer does
    normalizer: dict[str, Any] | None
    pre_tokenizer: dict[str, Any]
    chat_template: str

    @property
    def head_dim(self) -> int:
        return self.hidden_size // self.heads

    def token_id(self, token: str) -> int:
        first = 0 if self.special_first else self.vocab_size - len(self.special)
        return first + self.special.index(token)


LAYERS = 2
POSITIONS = 512


def byte_level(*, use_regex: bool) -> dict[str, Any]:
    return {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": use_regex,
    }


MODELS = (
    TinyModel(
        name="tiny-mistral",
        model_type="mistral",
        architecture="MistralForCausalLM",
        vocab_size=512,
        hidden_size=32,
        intermediate_size=64,
        heads=4,
        kv_heads=2,
        tied=False,
        qkv_bias=False,
        family={"rms_norm_eps": 1e-5, "rope_theta": 10000.0, "sliding_window": 128},
        embedding_std=0.2,
        matrix_std=0.2,
        special=("<unk>", "<s>", "</s>", "[INST]", "[/INST]", "<pad>"),
        special_first=True,
        bos="<s>",
        eos="</s>",
        pad="<pad>",
        unk="<unk>",
        add_bos=True,
        normalizer=None,
        pre_tokenizer=byte_level(use_regex=True),
        chat_template=MISTRAL_TEMPLATE,
    ),
    TinyModel(
        name="tiny-qwen2",
        model_type="qwen2",
        architecture="Qwen2ForCausalLM",
        vocab_size=640,
        hidden_size=48,
        intermediate_size=96,
        heads=6,
        kv_heads=2,
        tied=True,
        qkv_bias=True,
        family={
            "rms_norm_eps": 1e-6,
            "rope_theta": 1000000.0,
            "sliding_window": POSITIONS,
            "max_window_layers": LAYERS,
            "use_sliding_window": False,
        },
        # With tied embeddings a token's own row is its best match: small rows and large matrices
        # keep greedy decoding from repeating the last token, which would hide a broken cache.
        embedding_std=0.1,
        matrix_std=0.2,
        special=("<|endoftext|>", "<|im_start|>", "<|im_end|>"),
        special_first=False,
        bos=None,
        eos="<|im_end|>",
        pad="<|endoftext|>",
        unk=None,
        add_bos=False,
        normalizer={"type": "NFC"},
        pre_tokenizer={
            "type": "Sequence",
            "pretokenizers": [
                {
                    "type": "Split",
                    "pattern": {"Regex": QWEN2_SPLIT},
                    "behavior": "Isolated",
                    "invert": False,
                },
                byte_level(use_regex=False),
            ],
        },
        chat_template=QWEN2_TEMPLATE,
    ),
)
