"""TRL's GRPO trainer with given completions and rewards, and the right values of its loss.

Nothing is sampled: the model's ``generate`` gives completions of ours, of uneven length, and a
reward is a function of the text.  The advantage of a completion is its reward less the mean of its
group, divided by the group's standard deviation (arXiv:2402.03300, section 4.1).  As the policy has
not moved since, the ratio of formula 3 is 1 and has the gradient of the log-probability; the KL
term is formula 4, with a reference model that differs from the policy.  All log-probabilities are
those of the distribution that is sampled from: logits are divided by the temperature.

The tokens of a step are averaged in one of three ways.  ``grpo``: the mean over the tokens of each
completion, then over the completions.  ``dapo``: the mean over all tokens of the step on all ranks
(arXiv:2503.14476, formula 8).  ``bnpo``: the mean over the tokens of each micro-batch of a rank,
then over these; TRL 0.16 has no other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .. import dpo, measuring, steps, trainers, weights
from ..context import Rank, at_least
from . import grpo_seen
from .grpo_seen import Batch

BETA, GENERATIONS = 0.2, 2
EPSILON = 1e-4  # that TRL adds to a standard deviation

Scores = Sequence[Sequence[Sequence[float]]]  # by rank, micro-batch and completion
Row = tuple[dpo.Sequence_, float]


class Rows(list[Any]):
    """Rows as GRPO's collator leaves them, with the look of a batch that steps are kept by."""

    def items(self) -> list[Any]:
        """Nothing of the rows themselves is needed: see :func:`watched`."""
        return []


def measured(rank: Rank, invariant: str) -> None:
    """One step of the trainer, compared with the right gradient."""
    reference = dpo.other_model(rank)
    made = trainer(rank, reference)
    seen = grpo_seen.watched(made, GENERATIONS)
    step = steps.take(rank, made)
    batches = measuring.everyones(rank, seen)
    scores = advantages(rank, batches)
    assert_rows(rank, batches, scores)
    measuring.judged(
        rank,
        invariant,
        lambda: measuring.comparison(step.change, parts(rank, batches, scores, reference)),
    )


def completion(rank: Rank, row: int) -> str:
    """The completion of a row of this rank: 1 to 5 words, of other lengths within a group."""
    place = 2 * rank.rank + row
    return dpo.words(3 * place + 1, 1 + (3 * place) % 5)


def reward(text: str) -> float:
    """The reward of a text."""
    return sum(dpo.LETTERS.index(letter) for letter in text if letter in dpo.LETTERS) / 10


def rewards(completions: Sequence[str], **_: Any) -> list[float]:
    """The reward function that the trainer is given."""
    return [reward(text) for text in completions]


def give_completions(rank: Rank, model: Any, tokenizer: Any) -> None:
    """Makes a model give our completions in place of its own, each with an EOS."""
    import torch

    def generate(input_ids: Any, *_: Any, **__: Any) -> Any:
        if grpo_seen.generates_in_the_loss():  # each prompt comes once
            input_ids = input_ids.repeat_interleave(GENERATIONS, 0)
        rows = [tokenizer(completion(rank, n))["input_ids"] for n in range(len(input_ids))]
        ended = [torch.tensor([*row, tokenizer.eos_token_id]) for row in rows]
        padded = torch.nn.utils.rnn.pad_sequence(ended, True, tokenizer.pad_token_id)
        return torch.cat([input_ids, padded.to(input_ids.device)], 1)

    model.generate = generate


def trainer(rank: Rank, reference: Path) -> Any:
    """The GRPO trainer with the tiny model, for one step.

    Args:
        reference: folder of the reference model, which the trainer loads or copies itself.
    """
    from datasets import Dataset
    from transformers import AutoTokenizer

    trainer_class, config_class = trainers.find("GRPO")
    assert_options(rank, config_class)
    asked = {
        "beta": BETA,
        "num_generations": GENERATIONS,
        "temperature": temperature(rank),
        "loss_type": rank.condition("loss_type", "grpo"),
        "steps_per_generation": rank.condition("steps_per_generation"),
        "use_bias_correction_kl": False,  # formula 4 as the paper has it
        "max_prompt_length": 32,
        "max_completion_length": 16,
        "max_steps": 1,
    }
    if grpo_seen.generates_in_the_loss():  # and counts the prompts in place of the completions
        asked["per_device_train_batch_size"] = steps.ROWS // GENERATIONS
    if (scaled := rank.condition("scale_rewards")) is not None:
        asked["scale_rewards"] = scaled
    config = config_class(**steps.arguments(rank, config_class, **asked))
    tokenizer = AutoTokenizer.from_pretrained(rank.spec.model_dir, padding_side="left")
    prompts = dpo.pairs(steps.rows_of_a_step(rank))["prompt"]
    model = steps.model_of(rank)
    give_completions(rank, model, tokenizer)
    model.config._name_or_path = str(reference)  # where releases load the reference from
    with steps.fsdp(rank):
        made = trainer_class(
            model=model,
            reward_funcs=rewards,
            args=config,
            train_dataset=Dataset.from_dict({"prompt": prompts}),
            processing_class=tokenizer,
        )
    load_whole(made.ref_model, reference)
    made.data_collator = Rows
    return made


def assert_options(rank: Rank, config_class: Any) -> None:
    """Not applicable: releases that do not have what the variant asks for."""
    if rank.condition("loss_type") == "dapo" and not at_least("trl", "0.22.0"):
        rank.not_applicable("GRPOConfig has no loss_type dapo", since="0.22.0")
    if rank.condition("steps_per_generation") and not trainers.takes(
        config_class, "steps_per_generation"
    ):
        rank.not_applicable("GRPOConfig has no steps_per_generation", since="0.18.0")


def temperature(rank: Rank) -> float:
    """The temperature of the distribution that completions are sampled from."""
    return float(rank.condition("temperature", 1.0))


def averaging(rank: Rank) -> str:
    """How the trainer averages over the tokens of a step."""
    if at_least("trl", "0.16.0") and not at_least("trl", "0.17.0"):
        return "bnpo"
    return str(rank.condition("loss_type", "grpo"))


def load_whole(model: Any, folder: Path) -> None:
    """Gives a model the weights of a folder, where it holds its own as a whole.

    Some releases copy the policy and load no model, unless something shards it.
    """
    import torch

    state = weights.saved_state(folder)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            wanted = state.get(measuring.plain(name))
            if wanted is not None and type(parameter.data) is torch.Tensor and parameter.numel():
                parameter.copy_(wanted)


def sequences(batch: Batch) -> list[dpo.Sequence_]:
    """The sequences of a batch, without padding, with where the completion begins."""
    import torch

    found = []
    for prompt, real, own, there in zip(*(batch[name] for name in grpo_seen.NAMES), strict=True):
        before = prompt[real.bool()]
        found.append((torch.cat([before, own[there.bool()]]), len(before)))
    return found


def advantages(rank: Rank, batches: Sequence[Sequence[Batch]]) -> Scores:
    """The advantage of each completion, by rank and micro-batch; a group shares its prompt."""
    import torch
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(rank.spec.model_dir)
    groups: dict[str, list[float]] = defaultdict(list)

    def gain(ids: Any, begin: int) -> tuple[str, float]:
        prompt = tokenizer.decode(ids[:begin])
        worth = reward(tokenizer.decode(ids[begin:], skip_special_tokens=True))
        groups[prompt].append(worth)
        return prompt, worth

    gained = [[[gain(*row) for row in sequences(batch)] for batch in of] for of in batches]

    def advantage(prompt: str, worth: float) -> float:
        group = torch.tensor(groups[prompt], dtype=torch.float64)
        return float((worth - group.mean()) / (group.std() + EPSILON))

    return [[[advantage(*row) for row in rows] for rows in of_rank] for of_rank in gained]


def assert_rows(rank: Rank, batches: Sequence[Sequence[Batch]], scores: Scores) -> None:
    """Precondition: completions are uneven, and each is better or worse than its group."""
    found = [len(ids) - begin for b in batches for batch in b for ids, begin in sequences(batch)]
    every = [one for of_rank in scores for micro_batch in of_rank for one in micro_batch]
    told = f"lengths of completions: {sorted(found)}; advantages: {[round(a, 2) for a in every]}"
    rank.precondition("rows", len(set(found)) > 2 and all(abs(a) > 0.1 for a in every), told)


def losses(model: Any, reference: Any, row: Row, heat: float) -> Any:
    """The loss of each token of a completion.

    Args:
        row: the sequence and its advantage.
        heat: the temperature.
    """
    import torch

    (ids, begin), advantage = row
    logp, referred = (
        -measuring.token_losses(m(input_ids=ids[None]).logits / heat, ids[None])[begin - 1 :]
        for m in (model, reference)
    )
    gap = referred.detach() - logp
    divergence = gap.exp() - gap - 1
    ratio = torch.exp(logp - logp.detach())
    return BETA * divergence - ratio * advantage


def parts(
    rank: Rank, batches: Sequence[Sequence[Batch]], scores: Scores, reference: Path
) -> list[list[measuring.Tensors]]:
    """What every micro-batch adds to the gradient of the loss of the step.

    Args:
        batches: by rank and micro-batch, what the loss was computed from.
        scores: the advantages, in the same order.
        reference: folder of the reference model.
    """
    model, other = measuring.twin(rank), measuring.twin(rank, reference)
    every = [batch for of_rank in batches for batch in of_rank]
    completions = sum(len(sequences(batch)) for batch in every)
    all_tokens = sum(tokens(batch) for batch in every)
    heat, way = temperature(rank), averaging(rank)

    def part(batch: Batch, advantages: Sequence[float]) -> measuring.Tensors:
        rows = zip(sequences(batch), advantages, strict=True)
        of_rows = [losses(model, other, row, heat) for row in rows]
        if way == "grpo":
            loss = sum(row.mean() for row in of_rows) / completions
        else:
            divisor = all_tokens if way == "dapo" else tokens(batch) * len(every)
            loss = sum(row.sum() for row in of_rows) / divisor
        return measuring.gradient(model, loss)

    return [
        [part(*of_batch) for of_batch in zip(of_rank, own, strict=True)]
        for of_rank, own in zip(batches, scores, strict=True)
    ]


def tokens(batch: Batch) -> int:
    """How many tokens of completions a batch has."""
    return sum(len(ids) - begin for ids, begin in sequences(batch))
