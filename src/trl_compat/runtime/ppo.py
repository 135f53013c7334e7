"""A PPO trainer around tiny models, in any release that has one: its arguments changed names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import data, trainers
from .context import Rank


def one_batch(rank: Rank) -> dict[str, int]:
    """Settings under which it trains one batch of short episodes and samples nothing besides."""
    return {
        "total_episodes": 2 * rank.world_size,
        "num_ppo_epochs": 1,
        "num_mini_batches": 1,
        "response_length": 4,
        "local_rollout_forward_batch_size": 2,
        "num_sample_generations": 0,
    }


def trainer(
    rank: Rank,
    trainer_class: Callable[..., Any],
    config: Any,
    tokenizer: Any,
    *,
    policy: Any,
    reference: Any,
    reward: Any,
    value: Any,
) -> Any:
    """The trainer; each model under the names that it has had (0.14.0 has new ones)."""
    from transformers import DataCollatorWithPadding

    return trainer_class(
        **trainers.accepted(
            trainer_class,
            config=config,
            args=config,
            tokenizer=tokenizer,
            processing_class=tokenizer,
            policy=policy,
            model=policy,
            ref_policy=reference,
            ref_model=reference,
            reward_model=reward,
            value_model=value,
            # PPO waits for ever for the first batch of a dataset that holds less than one.
            train_dataset=data.token_dataset(tokenizer, rows=4 * rank.world_size),
            eval_dataset=data.token_dataset(tokenizer, rows=4),
            data_collator=DataCollatorWithPadding(tokenizer),
        )
    )
