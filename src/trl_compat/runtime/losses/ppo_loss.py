"""One update of TRL's PPO trainer with given responses, and the right values of its loss.

Nothing is sampled: the policy's ``generate`` gives responses of ours, of uneven length, with the
logits of an old policy that differs from the policy, so that some ratios are clipped.  Scores are
those of a reward model; the reference model and the value model differ from the policy as well.

The policy's loss is formula 7 of arXiv:1707.06347, the advantages are those of GAE
(arXiv:1506.02438, formula 16), the reward of a token is its KL penalty.  What the papers leave open
is as TRL has it.  A response that ends early has one state more, after its EOS: there it gets its
score, and this state has a value, but no token.  A response without EOS gets its score with its
last token, less ``missing_eos_penalty``.  Advantages are whitened on each rank, over its tokens.
Both losses are means over the tokens or states of a rank's micro-batch, and each rank counts alike.
Log-probabilities are those at ``temperature``.  The clipping of values has no effect in the first
epoch: the value model has not moved.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from .. import dpo, measuring, ppo, steps, strategies, trainers, weights
from ..context import Rank
from . import reward

LENGTH = 6  # of a response
GAMMA, LAMBDA, CLIP, KL, TEMPERATURE, PENALTY = 0.9, 0.8, 0.2, 0.3, 0.7, 2.0
VALUES = 0.08  # the gradients of policy and value model are about as long as each other
SETTINGS = {
    "gamma": GAMMA,
    "lam": LAMBDA,
    "cliprange": CLIP,
    "kl_coef": KL,
    "vf_coef": VALUES,
    "temperature": TEMPERATURE,
    "whiten_rewards": False,
    "stop_token": "eos",
    "response_length": LENGTH,
}

Row = tuple[Any, Any]  # the token ids of a query and of its response, without padding


class Models:
    """The models in float64, whole on every rank.

    Attributes:
        policy, old, reference: before the step, that of the samples, that of the KL penalty.
        critic, scorer: the value model before the step and the reward model.
    """

    def __init__(self, rank: Rank, reference: Path, critic: Path, scorer: Path) -> None:
        import torch

        self.policy, self.old = measuring.twin(rank), measuring.twin(rank)
        self.reference = measuring.twin(rank, reference)
        self.critic, self.scorer = (reward.load(p).double().eval() for p in (critic, scorer))
        with torch.no_grad():
            for old, other in zip(self.old.parameters(), self.reference.parameters(), strict=True):
                old.add_(old - other, alpha=0.5)


def measured(rank: Rank, invariant: str) -> None:
    """One update, compared with the right gradient."""
    scorer, reference = reward.classifier(rank), dpo.other_model(rank)
    critic = value_model(rank, scorer)
    models = Models(rank, reference, critic, scorer)
    given: list[list[Row]] = []
    made, penalty = trainer(rank, models, given, (reference, critic, scorer))
    strategies.assert_engine(rank, made.model)
    before = measuring.whole_model(made.model)
    made.train()
    step = measuring.change(before, measuring.whole_model(made.model))
    batches = measuring.everyones(rank, given)
    assert_rows(rank, models, batches)
    measuring.judged(
        rank,
        invariant,
        lambda: measuring.comparison(step, parts(models, batches, penalty)),
    )


def value_model(rank: Rank, scorer: Path) -> Path:
    """A folder with a value model: a reward model with another head, the same on all ranks."""
    import torch

    folder = rank.folder / f"critic{rank.rank}"
    model = reward.load(scorer)
    draw = torch.Generator().manual_seed(6)
    with torch.no_grad():
        model.score.weight.copy_(torch.randn(model.score.weight.shape, generator=draw))
    model.save_pretrained(folder)
    return folder


def response(tokenizer: Any, place: int) -> list[int]:
    """The tokens of a response: 3 to 6, the last of them EOS unless there are 6."""
    length = 3 + (3 * place) % 4
    ids = tokenizer(dpo.words(5 * place + 1, LENGTH))["input_ids"]
    return ids[:LENGTH] if length == LENGTH else [*ids[: length - 1], tokenizer.eos_token_id]


def give_responses(
    rank: Rank, policy: Any, models: Models, tokenizer: Any, given: list[list[Row]]
) -> None:
    """Makes a policy give our responses in place of its own, with the logits of the old policy.

    Args:
        given: filled with the rows of each call.
    """
    import torch

    def generate(input_ids: Any, *_: Any, attention_mask: Any, **__: Any) -> Any:
        first = len(input_ids) * (rank.world_size * len(given) + rank.rank)
        queries = zip(input_ids.cpu(), attention_mask.cpu(), strict=True)
        rows = [
            (ids[mask.bool()], torch.tensor(response(tokenizer, first + n)))
            for n, (ids, mask) in enumerate(queries)
        ]
        given.append(rows)
        shape = (len(rows), LENGTH)
        ids = torch.full(shape, tokenizer.pad_token_id)
        scores = torch.zeros((*shape, models.old.config.vocab_size))
        for n, (query, own) in enumerate(rows):
            ids[n, : len(own)] = own
            with torch.no_grad():
                scores[n, : len(own)] = logits(models.old, query, own).float()
        device = input_ids.device
        sequences = torch.cat([input_ids, ids.to(device)], 1)
        return SimpleNamespace(sequences=sequences, scores=scores.to(device).unbind(1))

    policy.generate = generate


def configure(rank: Rank) -> None:
    """Switches DeepSpeed on by the environment, without clipping."""
    strategies.configure_by_environment(rank)
    if (path := os.environ.get("ACCELERATE_DEEPSPEED_CONFIG_FILE")) is None:
        return
    settings = json.loads(Path(path).read_text(encoding="utf-8"))
    settings["gradient_clipping"] = 0.0  # PPO has no max_grad_norm that would say so
    Path(path).write_text(json.dumps(settings), encoding="utf-8")


def trainer(
    rank: Rank, models: Models, given: list[list[Row]], folders: tuple[Path, Path, Path]
) -> tuple[Any, float]:
    """The PPO trainer for one update, and how much a response without EOS loses of its score.

    Args:
        given: filled, while it trains, with the queries and responses.
        folders: of the reference model, the value model and the reward model.
    """
    import torch
    from transformers import AutoTokenizer

    trainer_class, config_class = trainers.find("PPO")
    configure(rank)
    penalty = PENALTY if trainers.takes(config_class, "missing_eos_penalty") else 0.0
    config = config_class(
        output_dir=str(rank.folder / "out"),
        **trainers.quiet_arguments(
            config_class, **{**ppo.one_batch(rank), **SETTINGS, "missing_eos_penalty": PENALTY}
        ),
    )
    tokenizer = AutoTokenizer.from_pretrained(rank.spec.model_dir, padding_side="left")
    policy = steps.model_of(rank)
    other, critic, scorer = folders
    value = reward.load(critic)
    weights.assert_loaded(rank, value, "value model", critic)
    give_responses(rank, policy, models, tokenizer, given)
    optimizer = measuring.sgd([*policy.parameters(), *value.parameters()])
    constant = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: 1.0)
    made = ppo.trainer(
        rank,
        functools.partial(trainer_class, optimizers=(optimizer, constant)),
        config,
        tokenizer,
        policy=policy,
        reference=steps.model_of(rank, other),
        reward=reward.load(scorer),
        value=value,
    )
    return made, penalty


def logits(model: Any, query: Any, own: Any) -> Any:
    """The logits of each token of a response, at the temperature."""
    import torch

    ids = torch.cat([query, own])[None]
    return model(input_ids=ids).logits[0, len(query) - 1 : -1] / TEMPERATURE


def logps(model: Any, row: Row) -> Any:
    """The log-probability of each token of a response."""
    return logits(model, *row).log_softmax(-1).gather(-1, row[1][:, None])[:, 0]


def values(critic: Any, row: Row) -> Any:
    """The values of the states of a response: before each token, and after an early end."""
    import torch

    query, own = row
    ids = torch.cat([query, own])[None]
    hidden = critic.base_model(input_ids=ids).last_hidden_state[0, len(query) - 1 :]
    return (hidden @ critic.score.weight[0])[:LENGTH]


def advantages(models: Models, row: Row, penalty: float) -> Any:
    """What each state of a response gains over its value, by GAE."""
    import torch

    query, own = row
    with torch.no_grad():
        found = values(models.critic, row)
        score = reward.reward(models.scorer, torch.cat([query, own]))
        gained = torch.zeros_like(found)
        gained[: len(own)] = -KL * (logps(models.old, row) - logps(models.reference, row))
    gained[-1] += score - (penalty if len(own) == LENGTH else 0.0)
    total, gains = torch.zeros_like(score), []
    for state in reversed(range(len(found))):
        after = found[state + 1] if state + 1 < len(found) else 0.0
        total = gained[state] + GAMMA * after - found[state] + GAMMA * LAMBDA * total
        gains.append(total)
    return torch.stack(gains[::-1])


def losses(models: Models, rows: Sequence[Row], penalty: float) -> tuple[Any, Any]:
    """The losses of the policy and of the value model on the rows of a rank."""
    import torch

    gains = [advantages(models, row, penalty) for row in rows]
    of_tokens = torch.cat([gain[: len(own)] for gain, (_, own) in zip(gains, rows, strict=True)])
    white = (of_tokens - of_tokens.mean()) * torch.rsqrt(of_tokens.var() + 1e-8)
    ratio = torch.cat([ratios(models, row) for row in rows])
    clipped = ratio.clamp(1 - CLIP, 1 + CLIP)
    found = torch.cat([values(models.critic, row) for row in rows])
    returns = torch.cat(gains) + found.detach()
    return -torch.min(white * ratio, white * clipped).mean(), (found - returns).square().mean() / 2


def ratios(models: Models, row: Row) -> Any:
    """How much likelier than the old policy the policy finds each token."""
    import torch

    with torch.no_grad():
        old = logps(models.old, row)
    return torch.exp(logps(models.policy, row) - old)


def assert_rows(rank: Rank, models: Models, batches: Sequence[Sequence[Sequence[Row]]]) -> None:
    """Preconditions: rows are uneven, one has no EOS, and some ratios are clipped."""
    import torch

    rows = [row for of_rank in batches for batch in of_rank for row in batch]
    lengths = [(len(query), len(own)) for query, own in rows]
    queries, owns = ({pair[side] for pair in lengths} for side in (0, 1))
    uneven = len(queries) > 1 and len(owns) > 2 and LENGTH in owns
    rank.precondition("rows", uneven, f"lengths of queries and responses: {lengths}")
    with torch.no_grad():
        found = torch.cat([ratios(models, row) for row in rows])
    outside = int(((found - 1).abs() > CLIP).sum())
    told = f"{outside} of {len(found)} ratios are clipped"
    rank.precondition("ratios", 0 < outside < len(found), told)


def parts(
    models: Models, batches: Sequence[Sequence[Sequence[Row]]], penalty: float
) -> list[list[measuring.Tensors]]:
    """What every rank adds to the gradient of policy and value model, by the trainer's names.

    Args:
        batches: by rank and micro-batch, the queries and responses.
        penalty: what a response without EOS loses of its score.
    """
    import torch

    both = torch.nn.ModuleDict({"policy": models.policy, "value_model": models.critic})
    found = []
    for of_rank in batches:
        of_policy, of_values = losses(models, [row for batch in of_rank for row in batch], penalty)
        loss = (of_policy + VALUES * of_values) / len(batches)
        found.append([measuring.gradient(both, loss)])
    return found
