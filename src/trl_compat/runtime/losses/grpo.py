"""TRL's GRPO trainer with given completions and rewards, and the right values of its loss.

Nothing is sampled: the model's ``generate`` gives completions of ours, of uneven length, and a
reward is a function of the text.  The advantage of a completion is its reward less the mean of its
group, divided by the group's standard deviation (arXiv:2402.03300, section 4.1).  As the policy has
not moved since, the ratio of formula 3 is 1 and has the gradient of the log-probability; the KL
term is formula 4, with a reference model that differs from the policy.  A completion counts by the
mean over its tokens, the step by the mean over its completions (``loss_type="grpo"``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .. import dpo, measuring, steps, trainers, weights
from ..context import Rank, at_least

BETA, GENERATIONS = 0.2, 2
EPSILON = 1e-4  # that TRL adds to a standard deviation

Batch = dict[str, Any]  # what the loss is computed from
NAMES = ("prompt_ids", "prompt_mask", "completion_ids", "completion_mask")


class Rows(list[Any]):
    """Rows as GRPO's collator leaves them, with the look of a batch that steps are kept by."""

    def items(self) -> list[Any]:
        """Nothing of the rows themselves is needed: see :func:`watched`."""
        return []


def measured(rank: Rank, invariant: str) -> None:
    """One step of the trainer, compared with the right gradient."""
    reference = dpo.other_model(rank)
    made = trainer(rank, reference)
    seen = watched(made)
    step = steps.take(rank, made)
    batches = measuring.everyones(rank, seen)
    scores = [advantages(rank, of_ranks) for of_ranks in zip(*batches, strict=True)]
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
    if not at_least("trl", "0.15.0"):
        rank.not_applicable("the loss is computed where nothing can be seen", since="0.15.0")
    if at_least("trl", "0.16.0") and not trainers.takes(config_class, "loss_type"):
        rank.not_applicable("TRL 0.16 averages over all tokens", since="0.17.0")
    asked = {
        "beta": BETA,
        "num_generations": GENERATIONS,
        "temperature": 1.0,
        "loss_type": "grpo",
        "use_bias_correction_kl": False,  # formula 4 as the paper has it
        "max_prompt_length": 32,
        "max_completion_length": 16,
        "max_steps": 1,
    }
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


def watched(made: Any) -> list[Batch]:
    """What a trainer computes its loss from, a batch each; it is filled while it trains."""
    seen: list[Batch] = []
    compute = made.compute_loss

    def keep_then_compute(model: Any, inputs: Any, *args: Any, **options: Any) -> Any:
        seen.append({name: inputs[name].detach().cpu().clone() for name in NAMES})
        return compute(model, inputs, *args, **options)

    made.compute_loss = keep_then_compute
    return seen


def sequences(batch: Batch) -> list[dpo.Sequence_]:
    """The sequences of a batch, without padding, with where the completion begins."""
    import torch

    found = []
    for prompt, real, own, there in zip(*(batch[name] for name in NAMES), strict=True):
        before = prompt[real.bool()]
        found.append((torch.cat([before, own[there.bool()]]), len(before)))
    return found


def advantages(rank: Rank, of_ranks: Sequence[Batch]) -> list[list[float]]:
    """The advantage of each completion of a micro-batch, by rank; a group shares its prompt."""
    import torch
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(rank.spec.model_dir)
    groups: dict[str, list[float]] = defaultdict(list)
    gained: list[list[tuple[str, float]]] = [[] for _ in of_ranks]
    for rows, batch in zip(gained, of_ranks, strict=True):
        for ids, begin in sequences(batch):
            prompt = tokenizer.decode(ids[:begin])
            worth = reward(tokenizer.decode(ids[begin:], skip_special_tokens=True))
            groups[prompt].append(worth)
            rows.append((prompt, worth))

    def advantage(prompt: str, worth: float) -> float:
        group = torch.tensor(groups[prompt], dtype=torch.float64)
        return float((worth - group.mean()) / (group.std() + EPSILON))

    return [[advantage(*row) for row in rows] for rows in gained]


def assert_rows(
    rank: Rank, batches: Sequence[Sequence[Batch]], scores: Sequence[Sequence[Sequence[float]]]
) -> None:
    """Precondition: completions are uneven, and each is better or worse than its group."""
    found = [len(ids) - begin for b in batches for batch in b for ids, begin in sequences(batch)]
    every = [one for micro_batch in scores for of_rank in micro_batch for one in of_rank]
    told = f"lengths of completions: {sorted(found)}; advantages: {[round(a, 2) for a in every]}"
    rank.precondition("rows", len(set(found)) > 2 and all(abs(a) > 0.1 for a in every), told)


def loss(model: Any, reference: Any, sequence: dpo.Sequence_, advantage: float) -> Any:
    """The loss of a completion: the mean over its tokens."""
    import torch

    ids, begin = sequence
    logp, referred = (
        -measuring.token_losses(m(input_ids=ids[None]).logits, ids[None])[begin - 1 :]
        for m in (model, reference)
    )
    gap = referred.detach() - logp
    divergence = gap.exp() - gap - 1
    ratio = torch.exp(logp - logp.detach())
    return (BETA * divergence - ratio * advantage).mean()


def parts(
    rank: Rank,
    batches: Sequence[Sequence[Batch]],
    scores: Sequence[Sequence[Sequence[float]]],
    reference: Path,
) -> list[list[measuring.Tensors]]:
    """What every micro-batch adds to the gradient of the mean over all completions of the step.

    Args:
        batches: by rank and micro-batch, what the loss was computed from.
        scores: the advantages, by micro-batch and rank.
        reference: folder of the reference model.
    """
    model, other = measuring.twin(rank), measuring.twin(rank, reference)
    total = sum(len(sequences(batch)) for of_rank in batches for batch in of_rank)

    def part(batch: Batch, advantages: Sequence[float]) -> measuring.Tensors:
        rows = zip(sequences(batch), advantages, strict=True)
        return measuring.gradient(model, sum(loss(model, other, *row) for row in rows) / total)

    by_rank = zip(*scores, strict=True)
    return [
        [part(*of_batch) for of_batch in zip(of_rank, own, strict=True)]
        for of_rank, own in zip(batches, by_rank, strict=True)
    ]
