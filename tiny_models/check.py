#!/usr/bin/env python3
"""Prove, in a stack's own interpreter, that a tiny model loads, generates and learns there.

    python tiny_models/check.py tiny_models/tiny-mistral

One line per check, exit status 0 when all hold and 1 otherwise. A release of transformers which
reads a tiny model wrongly (a bias dropped, a pad token lost, weights initialised anew) would make
the verdicts of every cell on it worthless: run this when a release joins the matrix. It needs torch
and transformers, nothing of the harness, no network, and stays with Python 3.9's syntax.

Seen to pass, with torch 2.13.0 on CPU, on transformers 4.40.0, 4.44.2, 4.46.3,
4.57.6, 5.0.0 and 5.23.0, with the same losses on each.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Before transformers is imported, which reads them once: nothing here may come from the hub.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_VERBOSITY"] = "error"
os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"

import torch
import transformers
import transformers.utils.logging
from safetensors.torch import load_file
from tokenizers import Tokenizer
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
)

#: Of different lengths, so that a batch of them needs padding.
PROMPTS = ("What is 2 + 2?", "Tell me a story about a dragon and a cat, please.")
#: The longer one reaches past Mistral's sliding window of 128 tokens.
LONG_PROMPTS = (PROMPTS[1] * 3, PROMPTS[0] * 30)
NEW_TOKENS = 24


def require(holds: bool, otherwise: str) -> None:
    """Like `assert`, which `python -O` removes."""
    if not holds:
        raise AssertionError(otherwise)


def policy(directory: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(directory).eval()


def batch_of(directory: Path, prompts: tuple[str, ...] = PROMPTS) -> tuple[Any, Any]:
    tokenizer = AutoTokenizer.from_pretrained(directory)
    return tokenizer, tokenizer(list(prompts), padding=True, return_tensors="pt")


def config_keeps_its_features(directory: Path) -> str:
    config = policy(directory).config
    require(config.num_key_value_heads < config.num_attention_heads, "no grouped-query attention")
    # transformers 5 moved rope_theta into rope_parameters.
    rope = getattr(config, "rope_parameters", None) or {"rope_theta": config.rope_theta}
    theta = {"mistral": 10000.0, "qwen2": 1000000.0}[config.model_type]
    require(rope["rope_theta"] == theta, f"rope_theta is {rope['rope_theta']}, not {theta}")
    if config.model_type == "mistral":
        require(config.sliding_window == 128, f"sliding_window is {config.sliding_window}")
    else:
        require(config.tie_word_embeddings, "embeddings are not tied")
        require(not config.use_sliding_window, "use_sliding_window is on")
    return f"{config.model_type}, rope_theta {theta:g}"


def weights_are_those_of_the_file(directory: Path) -> str:
    model, info = AutoModelForCausalLM.from_pretrained(directory, output_loading_info=True)
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        require(not info[kind], f"{kind}: {info[kind]}")
    loaded, stored = model.state_dict(), load_file(str(directory / "model.safetensors"))
    for name, tensor in stored.items():
        dtypes = (tensor.dtype, loaded[name].dtype)
        require(set(dtypes) == {torch.float32}, f"{name}: file and model are {dtypes}")
        require(bool(torch.isfinite(tensor).all()), f"{name} has values that are not finite")
        require(torch.equal(loaded[name], tensor), f"{name} differs from the file")
    tied = model.lm_head.weight.data_ptr() == model.model.embed_tokens.weight.data_ptr()
    require(tied == model.config.tie_word_embeddings, f"tied in memory: {tied}")
    require(tied == ("lm_head.weight" not in stored), "the file has a tensor too many or too few")
    return f"{len(stored)} tensors"


def reward_model_loads_with_a_new_head_only(directory: Path) -> str:
    model, info = AutoModelForSequenceClassification.from_pretrained(
        directory, num_labels=1, output_loading_info=True
    )
    require(set(info["missing_keys"]) == {"score.weight"}, f"missing: {info['missing_keys']}")
    _, batch = batch_of(directory)
    with torch.no_grad():
        rewards = model.eval()(**batch).logits
    require(tuple(rewards.shape) == (len(PROMPTS), 1), f"shape {tuple(rewards.shape)}")
    require(bool(torch.isfinite(rewards).all()), "rewards are not finite")
    return "score.weight is new"


def tokenizer_agrees_with_the_model(directory: Path) -> str:
    tokenizer, batch = batch_of(directory)
    config = policy(directory).config
    require(tokenizer.is_fast, "not a fast tokenizer")
    require(len(tokenizer) == config.vocab_size, f"{len(tokenizer)} tokens")
    require(tokenizer.pad_token_id == config.pad_token_id, f"pad is {tokenizer.pad_token_id}")
    require(tokenizer.eos_token_id == config.eos_token_id, f"eos is {tokenizer.eos_token_id}")
    require(tokenizer.pad_token_id != tokenizer.eos_token_id, "pad is eos")
    require(tokenizer.padding_side == "left", f"pads on the {tokenizer.padding_side}")
    require(set(batch) == {"input_ids", "attention_mask"}, f"returns {sorted(batch)}")
    starts = tokenizer("a")["input_ids"][0] == tokenizer.bos_token_id
    require(starts == (tokenizer.bos_token_id is not None), "bos is not where it should be")
    marks = ("[INST]",) if config.model_type == "mistral" else ("<|im_start|>",)
    for mark in (*marks, tokenizer.eos_token, tokenizer.pad_token):
        require(len(tokenizer(mark, add_special_tokens=False)["input_ids"]) == 1, f"{mark} splits")
        require(mark in tokenizer.all_special_tokens, f"{mark} is not special")
    # transformers 5 picks the family's class, which builds its own pipeline, over the named one.
    stored = Tokenizer.from_file(str(directory / "tokenizer.json"))
    for text in (*LONG_PROMPTS, "été 東京 🐉\n\n  12345 don't"):
        ids = tokenizer(text)["input_ids"]
        require(ids == stored.encode(text).ids, f"{text!r}: other tokens than tokenizer.json's")
        require(tokenizer.decode(ids, skip_special_tokens=True) == text, f"{text!r} changes")
    return f"{len(tokenizer)} tokens, {type(tokenizer).__name__}"


def chat_template_renders(directory: Path) -> str:
    tokenizer, _ = batch_of(directory)
    chat = [
        {"role": "user", "content": "Hello!"},
        {"role": "assistant", "content": "How are you?"},
        {"role": "user", "content": "Fine."},
    ]
    prompt = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    if policy(directory).config.model_type == "mistral":
        wanted = "<s>[INST] Hello! [/INST] How are you?</s>[INST] Fine. [/INST]"
    else:
        wanted = (
            "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"
            "<|im_start|>user\nHello!<|im_end|>\n<|im_start|>assistant\nHow are you?<|im_end|>\n"
            "<|im_start|>user\nFine.<|im_end|>\n<|im_start|>assistant\n"
        )
    require(prompt == wanted, f"renders {prompt!r}")
    # TRL takes a completion to be what the whole chat has after the prompt.
    whole = tokenizer.apply_chat_template(
        [*chat, {"role": "assistant", "content": "Good."}], tokenize=False
    )
    require(whole.startswith(prompt), "the prompt is no prefix of the whole chat")
    return f"{len(prompt)} characters"


def logits_are_finite_and_not_uniform(directory: Path) -> str:
    model = policy(directory)
    # Longer than Mistral's sliding window.
    ids = torch.arange(200).unsqueeze(0) * 7 % model.config.vocab_size
    with torch.no_grad():
        logits = model(input_ids=ids).logits
    require(bool(torch.isfinite(logits).all()), "logits are not finite")
    spread = logits.std(dim=-1)
    require(bool((spread > 0.3).all()), f"logits spread by {spread.min():.3f} only")
    return f"spread {spread.min():.2f} to {spread.max():.2f}"


def generated(directory: Path, prompts: tuple[str, ...], *, use_cache: bool) -> list[list[int]]:
    _, batch = batch_of(directory, prompts)
    # `min_new_tokens` keeps eos away: every row then has the same length.
    rows = policy(directory).generate(
        **batch,
        do_sample=False,
        min_new_tokens=NEW_TOKENS,
        max_new_tokens=NEW_TOKENS,
        use_cache=use_cache,
    )
    new: list[list[int]] = rows[:, batch["input_ids"].shape[1] :].tolist()
    return new


def cached_left_padded_generate_agrees(directory: Path) -> str:
    """A padded batch with the cache gives what each prompt gives alone without it."""
    fewest = NEW_TOKENS
    for prompts in (PROMPTS, LONG_PROMPTS):
        for index, row in enumerate(generated(directory, prompts, use_cache=True)):
            [alone] = generated(directory, (prompts[index],), use_cache=False)
            require(len(row) == NEW_TOKENS, f"{len(row)} new tokens, not {NEW_TOKENS}")
            require(row == alone, f"{row} with cache and padding, {alone} without")
            fewest = min(fewest, len(set(row)))
    # A model that repeats one token would agree whatever its cache does.
    require(fewest > NEW_TOKENS // 3, f"only {fewest} different tokens in {NEW_TOKENS}")
    return f"{NEW_TOKENS} tokens, at least {fewest} different"


def loss_falls_in_training(directory: Path) -> str:
    model = policy(directory).train()
    _, batch = batch_of(directory)
    mask = batch["attention_mask"]
    # The first token after padding would be predicted from a padded position, whose output is
    # arbitrary and differs between releases.
    started = torch.cat([torch.zeros_like(mask[:, :1]), mask[:, :-1]], dim=1)
    labels = batch["input_ids"].masked_fill(mask * started == 0, -100)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    losses = []
    for step in range(20):
        optimizer.zero_grad()
        loss = model(**batch, labels=labels).loss
        loss.backward()
        if step == 0:
            without = [name for name, p in model.named_parameters() if p.grad is None]
            require(not without, f"no gradient: {without}")
        optimizer.step()
        losses.append(loss.item())
    require(losses[-1] < losses[0] / 2, f"loss went from {losses[0]:.3f} to {losses[-1]:.3f}")
    return f"{losses[0]:.2f} to {losses[-1]:.2f}"


CHECKS: tuple[Callable[[Path], str], ...] = (
    config_keeps_its_features,
    weights_are_those_of_the_file,
    reward_model_loads_with_a_new_head_only,
    tokenizer_agrees_with_the_model,
    chat_template_renders,
    logits_are_finite_and_not_uniform,
    cached_left_padded_generate_agrees,
    loss_falls_in_training,
)


def main(arguments: list[str]) -> int:
    if len(arguments) != 1 or not Path(arguments[0], "config.json").is_file():
        print("usage: check.py DIR, a folder with a tiny model", file=sys.stderr)
        return 2
    directory = Path(arguments[0])
    torch.manual_seed(0)
    transformers.utils.logging.disable_progress_bar()
    versions = f"transformers {transformers.__version__}, torch {torch.__version__}"
    print(f"{directory.name}: {versions}")
    failed = 0
    for check in CHECKS:
        name = check.__name__.replace("_", " ")
        try:
            print(f"ok    {name}: {check(directory)}")
        except Exception as error:  # whatever a release raises is that check's answer
            failed += 1
            if not isinstance(error, AssertionError):
                traceback.print_exc()
            print(f"FAIL  {name}: {type(error).__name__}: {error}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
