"""Sabotages of gradient: a factor, a lost token, a stale reference, a wrong judge, equal rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .declaration import breaks
from .spoiling import before_the_loss, upon

PAD = 637  # of tiny-qwen2


@breaks("gradient", within="measuring.judged", variant="sft-ddp")
def the_loss_has_a_factor(rank: Any, reproduction: Any) -> None:
    def scale(trainer: Any, *_: Any) -> None:
        compute = trainer.compute_loss
        trainer.compute_loss = lambda *args, **options: compute(*args, **options) * 0.99

    upon(reproduction.sft, "trainer", scale)


@breaks("gradient", within="measuring.judged", variant="dpo-ddp")
def the_reference_is_the_policy(rank: Any, reproduction: Any) -> None:
    def copy(trainer: Any, *_: Any) -> None:
        trainer.ref_model.load_state_dict(trainer.model.state_dict())

    upon(reproduction.dpo, "trainer", copy)


@breaks("gradient", within="measuring.judged", variant="dpo-zero2")
def the_first_token_of_each_answer_is_lost(rank: Any, reproduction: Any) -> None:
    def lose(inputs: Any) -> None:
        for row in inputs["completion_mask"]:
            row[row.nonzero()[0]] = 0

    upon(reproduction.dpo, "trainer", lambda trainer, *_: before_the_loss(trainer, lose))


@breaks("rows", within="dpo.assert_rows", variant="dpo-ddp")
def all_pairs_are_one(rank: Any, reproduction: Any) -> None:
    def one(count: int) -> Any:
        return {"prompt": ["a b"] * count, "chosen": [" c"] * count, "rejected": [" d"] * count}

    reproduction.dpo.pairs = one


@breaks("gradient", within="measuring.judged", variant="reward-ddp")
def the_rejected_text_is_chosen(rank: Any, reproduction: Any) -> None:
    def swap(inputs: Any) -> None:
        half = len(inputs["input_ids"]) // 2
        for name in ("input_ids", "attention_mask"):
            inputs[name] = inputs[name].roll(half, 0)

    upon(reproduction.reward, "trainer", lambda trainer, *_: before_the_loss(trainer, swap))


@breaks("gradient", within="measuring.judged", variant="reward-zero3")
def a_text_is_judged_before_its_end(rank: Any, reproduction: Any) -> None:
    def cut(inputs: Any) -> None:
        row, mask = inputs["input_ids"][0], inputs["attention_mask"][0]
        last = mask.nonzero()[-1]
        row[last], mask[last] = PAD, 0

    upon(reproduction.reward, "trainer", lambda trainer, *_: before_the_loss(trainer, cut))


@breaks("rows", within="reward.assert_rows", variant="reward-ddp")
def the_texts_of_a_pair_are_as_long_as_each_other(rank: Any, reproduction: Any) -> None:
    reproduction.reward.pairs = lambda count: {
        "chosen": ["a b c"] * count,
        "rejected": ["d e f"] * count,
    }


@breaks("gradient", within="measuring.judged", variant="kto-ddp")
def the_kl_estimate_has_the_other_sign(rank: Any, reproduction: Any) -> None:
    def turn(trainer: Any, *_: Any) -> None:
        compute = trainer._compute_kl_logps
        trainer._compute_kl_logps = lambda *args: -compute(*args)

    upon(reproduction.kto, "trainer", turn)


@breaks("gradient", within="measuring.judged", variant="kto-zero2")
def each_rank_has_a_kl_estimate_of_its_own(rank: Any, reproduction: Any) -> None:
    def alone(trainer: Any, *_: Any) -> None:
        trainer.accelerator.gather_for_metrics = lambda mine: mine

    upon(reproduction.kto, "trainer", alone)


@breaks("gradient", within="measuring.judged", variant="kto-ddp")
def the_reference_of_kto_is_the_policy(rank: Any, reproduction: Any) -> None:
    def copy(trainer: Any, *_: Any) -> None:
        trainer.ref_model.load_state_dict(trainer.model.state_dict())

    upon(reproduction.kto, "trainer", copy)


@breaks("gradient", within="measuring.judged", variant="kto-zero3")
def an_undesirable_answer_is_desirable(rank: Any, reproduction: Any) -> None:
    def please(inputs: Any) -> None:
        inputs["label"][:] = True

    upon(reproduction.kto, "trainer", lambda trainer, *_: before_the_loss(trainer, please))


@breaks("rows", within="kto.assert_rows", variant="kto-ddp")
def all_answers_are_one(rank: Any, reproduction: Any) -> None:
    def one(rows: Any, count: int) -> None:
        rows.update(prompt=["a b"] * count, completion=[" c"] * count)

    upon(reproduction.kto, "rows", one)


@breaks("rows", within="kto.assert_rows", variant="kto-ddp")
def all_answers_are_desirable(rank: Any, reproduction: Any) -> None:
    upon(reproduction.kto, "rows", lambda rows, count: rows.update(label=[True] * count))


@breaks("rows", within="kto.assert_rows", variant="kto-ddp")
def an_answer_is_empty(rank: Any, reproduction: Any) -> None:
    def empty(trainer: Any, *_: Any) -> None:
        collate = trainer.data_collator

        def collated(rows: Any) -> Any:
            batch = collate(rows)
            batch["completion_mask"][0] = 0
            return batch

        trainer.data_collator = collated

    upon(reproduction.kto, "trainer", empty)


@breaks("kl", within="kto.assert_rows", variant="kto-ddp")
def policy_and_reference_are_one(rank: Any, reproduction: Any) -> None:
    reproduction.kto.other_model = lambda rank: Path(rank.spec.model_dir)


@breaks("gradient", within="measuring.judged", variant="grpo-ddp")
def the_advantages_are_halved(rank: Any, reproduction: Any) -> None:
    def halve(inputs: Any) -> None:
        inputs["advantages"] = inputs["advantages"] / 2

    upon(reproduction.grpo, "trainer", lambda trainer, *_: before_the_loss(trainer, halve))


@breaks("gradient", within="measuring.judged", variant="grpo-zero3")
def a_token_of_padding_counts(rank: Any, reproduction: Any) -> None:
    def count(inputs: Any) -> None:
        mask = inputs["completion_mask"] = inputs["completion_mask"].clone()
        mask[:, : int(mask.sum(1).min()) + 1] = 1

    upon(reproduction.grpo, "trainer", lambda trainer, *_: before_the_loss(trainer, count))


@breaks("gradient", within="measuring.judged", variant="grpo-ddp")
def the_reference_of_grpo_is_the_policy(rank: Any, reproduction: Any) -> None:
    def copy(trainer: Any, *_: Any) -> None:
        trainer.ref_model.load_state_dict(trainer.model.state_dict())

    upon(reproduction.grpo, "trainer", copy)


@breaks("gradient", within="measuring.judged", variant="grpo-ddp-temperature")
def the_logits_are_not_divided_by_the_temperature(rank: Any, reproduction: Any) -> None:
    def forget(trainer: Any, *_: Any) -> None:
        trainer.temperature = 1.0

    upon(reproduction.grpo, "trainer", forget)


@breaks("gradient", within="measuring.judged", variant="grpo-ddp-dapo-generations")
def a_step_has_half_its_tokens(rank: Any, reproduction: Any) -> None:
    def halve(inputs: Any) -> None:
        inputs["num_items_in_batch"] = inputs["num_items_in_batch"] / 2

    upon(reproduction.grpo, "trainer", lambda trainer, *_: before_the_loss(trainer, halve))


@breaks("gradient", within="measuring.judged", variant="grpo-ddp-dapo")
def each_completion_counts_alike(rank: Any, reproduction: Any) -> None:
    def alike(trainer: Any, *_: Any) -> None:
        trainer.loss_type = "grpo"

    upon(reproduction.grpo, "trainer", alike)


@breaks("gradient", within="measuring.judged", variant="grpo-ddp", stack="trl-0.14.0")
def the_divergence_counts_half(rank: Any, reproduction: Any) -> None:
    def halve(trainer: Any, *_: Any) -> None:
        trainer.beta /= 2

    upon(reproduction.grpo, "trainer", halve)


@breaks("rows", within="grpo.assert_rows", variant="grpo-ddp")
def all_completions_are_of_one_length(rank: Any, reproduction: Any) -> None:
    reproduction.grpo.completion = lambda rank, row: "abc"[row]


@breaks("rows", within="grpo.assert_rows", variant="grpo-ddp")
def all_completions_are_equally_good(rank: Any, reproduction: Any) -> None:
    reproduction.grpo.reward = lambda text: 1.0


@breaks("gradient", within="measuring.judged", variant="online-dpo-ddp")
def the_worse_completion_is_chosen(rank: Any, reproduction: Any) -> None:
    def turn(trainer: Any, *_: Any) -> None:
        (judge,) = trainer.reward_funcs
        trainer.reward_funcs = [lambda **given: [-worth for worth in judge(**given)]]

    upon(reproduction.online_dpo, "trainer", turn)


@breaks("gradient", within="measuring.judged", variant="online-dpo-zero2")
def the_last_token_of_a_completion_is_lost(rank: Any, reproduction: Any) -> None:
    from trl.experimental.online_dpo import online_dpo_trainer

    def lose(truncated: Any, *_: Any) -> None:
        for row in truncated[1]:
            row[row.nonzero()[-1]] = 0

    upon(online_dpo_trainer, "truncate_right", lose)


@breaks("gradient", within="measuring.judged", variant="online-dpo-ddp")
def the_reference_of_online_dpo_is_the_policy(rank: Any, reproduction: Any) -> None:
    def copy(trainer: Any, *_: Any) -> None:
        trainer.ref_model.load_state_dict(trainer.model.state_dict())

    upon(reproduction.online_dpo, "trainer", copy)


@breaks("rows", within="online_dpo.assert_rows", variant="online-dpo-ddp")
def both_completions_are_of_one_length(rank: Any, reproduction: Any) -> None:
    reproduction.online_dpo.completion = lambda place: "abcdefgh"[5 * place % 8]


@breaks("rows", within="online_dpo.assert_rows", variant="online-dpo-ddp")
def the_first_completion_is_always_better(rank: Any, reproduction: Any) -> None:
    reproduction.online_dpo.first_is_better = lambda pair: True


@breaks("gradient", within="measuring.judged", variant="ppo-ddp")
def advantages_are_not_whitened(rank: Any, reproduction: Any) -> None:
    from trl.experimental.ppo import ppo_trainer

    ppo_trainer.masked_whiten = lambda values, *_, **__: values


@breaks("gradient", within="measuring.judged", variant="ppo-ddp")
def the_value_model_has_no_loss(rank: Any, reproduction: Any) -> None:
    upon(reproduction.ppo_loss, "trainer", lambda made, *_: setattr(made[0].args, "vf_coef", 0.0))


@breaks("gradient", within="measuring.judged", variant="ppo-zero2")
def no_ratio_is_clipped(rank: Any, reproduction: Any) -> None:
    upon(reproduction.ppo_loss, "trainer", lambda made, *_: setattr(made[0].args, "cliprange", 9.0))


@breaks("gradient", within="measuring.judged", variant="ppo-ddp")
def the_reference_of_ppo_is_the_policy(rank: Any, reproduction: Any) -> None:
    def copy(made: Any, *_: Any) -> None:
        made[0].ref_model.load_state_dict(made[0].policy_model.state_dict())

    upon(reproduction.ppo_loss, "trainer", copy)


@breaks("rows", within="ppo_loss.assert_rows", variant="ppo-ddp")
def all_responses_are_of_one_length(rank: Any, reproduction: Any) -> None:
    respond = reproduction.ppo_loss.response
    reproduction.ppo_loss.response = lambda tokenizer, place: respond(tokenizer, 1)


@breaks("ratios", within="ppo_loss.assert_rows", variant="ppo-ddp")
def the_old_policy_is_the_policy(rank: Any, reproduction: Any) -> None:
    upon(reproduction.ppo_loss, "Models", lambda made, *_: setattr(made, "old", made.policy))
