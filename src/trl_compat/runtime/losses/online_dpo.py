"""TRL's Online DPO trainer with given completions and a given judge, and the right values.

Nothing is sampled: the model's ``generate`` gives two completions of ours for each prompt, of
uneven length, each with an EOS.  Which of them is better is said by a function of the text, as a
judge or, where TRL takes one, as a reward function.  The loss of a pair is formula 7 of the DPO
paper (arXiv:2305.18290), as in Online DPO (arXiv:2402.04792, section 3), and the step is its mean
over all pairs.  The reference model differs from the policy.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .. import dpo, measuring, steps, trainers
from ..context import Rank, at_least

BETA = 0.5

Batch = list[list[dpo.Sequence_]]  # pairs, in the order in which they were given


def measured(rank: Rank, invariant: str) -> None:
    """One step of the trainer, compared with the right gradient."""
    reference = dpo.other_model(rank)
    given: list[Batch] = []
    step = steps.take(rank, trainer(rank, reference, given))
    batches = measuring.everyones(rank, given)
    assert_rows(rank, batches)
    measuring.judged(
        rank,
        invariant,
        lambda: measuring.comparison(step.change, parts(rank, batches, reference)),
    )


def completion(place: int) -> str:
    """A completion: 1 to 5 words, of other lengths within a pair."""
    return dpo.words(5 * place + 1, 1 + (3 * place) % 5)


def worth(text: str) -> float:
    """How good a text is: higher if its words are late in the alphabet."""
    found = [dpo.LETTERS.index(letter) for letter in text if letter in dpo.LETTERS]
    return sum(found) / len(found)


def first_is_better(pair: Sequence[str]) -> bool:
    """The judgement of two texts."""
    return worth(pair[0]) > worth(pair[1])


def rewards(completions: Sequence[str], **_: Any) -> list[float]:
    """The reward function of releases that take one."""
    return [worth(text) for text in completions]


class Judge:
    """The judge of releases that take one."""

    def judge(self, _prompts: Any, pairs: Sequence[Sequence[str]], *_: Any, **__: Any) -> list[int]:
        """The place of the better completion of each pair."""
        return [0 if first_is_better(pair) else 1 for pair in pairs]


def give_completions(rank: Rank, model: Any, tokenizer: Any, given: list[Batch]) -> None:
    """Makes a model give our completions in place of its own, each with an EOS.

    Args:
        given: filled with the pairs of each call: sequences without padding.
    """
    import torch

    def generate(input_ids: Any, *_: Any, attention_mask: Any, **__: Any) -> Any:
        first = len(input_ids) * (rank.world_size * len(given) + rank.rank)
        own = [tokenizer(completion(first + n))["input_ids"] for n in range(len(input_ids))]
        ended = [torch.tensor([*ids, tokenizer.eos_token_id]) for ids in own]
        prompts = zip(input_ids.cpu(), attention_mask.cpu(), strict=True)
        before = [ids[mask.bool()] for ids, mask in prompts]
        rows = [(torch.cat(pair), len(pair[0])) for pair in zip(before, ended, strict=True)]
        half = len(rows) // 2  # all prompts come once, and then once more
        given.append([[rows[n], rows[n + half]] for n in range(half)])
        padded = torch.nn.utils.rnn.pad_sequence(ended, True, tokenizer.pad_token_id)
        return torch.cat([input_ids, padded.to(input_ids.device)], 1)

    model.generate = generate


def trainer(rank: Rank, reference: Path, given: list[Batch], count: int = 1, **more: Any) -> Any:
    """The Online DPO trainer with the tiny model and as many prompts as its steps take.

    Args:
        reference: folder of the reference model.
        given: filled, while it trains, with the pairs of each micro-batch.
        count: number of optimizer steps.
        more: arguments of its config that differ from those that measure the gradient.
    """
    from datasets import Dataset
    from transformers import AutoTokenizer

    trainer_class, config_class = trainers.find("Online DPO")
    if not at_least("trl", "0.12.0"):
        rank.not_applicable("the trainer takes no judge", since="0.12.0")
    asked = {
        "beta": BETA,
        "max_length": 64,
        "max_new_tokens": 16,
        "missing_eos_penalty": None,
        "max_steps": count,
        **more,
    }
    config = config_class(**steps.arguments(rank, config_class, **asked))
    tokenizer = AutoTokenizer.from_pretrained(rank.spec.model_dir, padding_side="left")
    prompts = dpo.pairs(count * steps.rows_of_a_step(rank))["prompt"]
    model = steps.model_of(rank)
    give_completions(rank, model, tokenizer, given)
    if trainers.takes(trainer_class, "reward_funcs"):
        judging: dict[str, Any] = {"reward_funcs": [rewards]}
    else:
        judging = {"judge": Judge()}
    with steps.fsdp(rank):
        return trainer_class(
            model=model,
            ref_model=steps.model_of(rank, reference),
            args=config,
            train_dataset=Dataset.from_dict({"prompt": prompts}),
            processing_class=tokenizer,
            **judging,
        )


def assert_rows(rank: Rank, batches: Sequence[Sequence[Batch]]) -> None:
    """Precondition: completions are uneven, and the better one is now the first, now the second."""
    pairs = [pair for of_rank in batches for batch in of_rank for pair in batch]
    lengths = [[len(ids) - begin for ids, begin in pair] for pair in pairs]
    uneven = len({length for pair in lengths for length in pair}) > 2
    better = {first_is_better(pair) for pair in texts(rank, pairs)}
    told = f"lengths of completions: {lengths}; the first is better: {sorted(better)}"
    rank.precondition("rows", uneven and len(better) == 2, told)


def texts(rank: Rank, pairs: Sequence[Sequence[dpo.Sequence_]]) -> list[list[str]]:
    """The completions of pairs, as text."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(rank.spec.model_dir)
    return [
        [tokenizer.decode(ids[begin:], skip_special_tokens=True) for ids, begin in pair]
        for pair in pairs
    ]


def loss(model: Any, reference: Any, chosen: dpo.Sequence_, rejected: dpo.Sequence_) -> Any:
    """The DPO loss of a pair."""
    import torch

    logp, other = (dpo.logp(model, sequence) for sequence in (chosen, rejected))
    with torch.no_grad():
        referred = dpo.logp(reference, chosen) - dpo.logp(reference, rejected)
    return -torch.nn.functional.logsigmoid(BETA * (logp - other - referred))


def parts(
    rank: Rank, batches: Sequence[Sequence[Batch]], reference: Path
) -> list[list[measuring.Tensors]]:
    """What every micro-batch adds to the gradient of the mean over all pairs of the step.

    Args:
        batches: by rank and micro-batch, the pairs.
        reference: folder of the reference model.
    """
    model, other = measuring.twin(rank), measuring.twin(rank, reference)
    total = sum(len(batch) for of_rank in batches for batch in of_rank)

    def part(batch: Batch) -> measuring.Tensors:
        judged = [
            pair if first_is_better(told) else pair[::-1]
            for pair, told in zip(batch, texts(rank, batch), strict=True)
        ]
        return measuring.gradient(model, sum(loss(model, other, *pair) for pair in judged) / total)

    return [[part(batch) for batch in of_rank] for of_rank in batches]
