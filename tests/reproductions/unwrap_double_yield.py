"""unwrap-double-yield: generating without gathering, and what the block gives back.

``unwrap_model_for_generation`` gathers ZeRO-3 parameters and takes DeepSpeed's hooks away while a
trainer generates.  TRL added an option to leave both alone, first without an ``else``: the context
manager yielded twice (huggingface/trl#2557, #2639).  The facets ask what the option promises: one
yield, sharded parameters inside, hooks as before, the same tokens, a config that has it and
trainers that honour it; and, for the gathering path, hooks that come back after an exception too.

The helper is called as trainers call it, with an engine that accelerate made.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from trl_compat.runtime import data, ppo, strategies, trainers, weights
from trl_compat.runtime.context import NotApplicable, Rank, at_least
from trl_compat.runtime.engines import (
    all_sharded,
    all_whole,
    generate,
    hooks_of,
    left_whole,
    loss_of,
)

OPTION = "ds3_gather_for_generation"
ARGUMENT = "gather_deepspeed3_params"
FIRST_WITH_OPTION = "0.14.0"
NEW_TOKENS = 6


class Interruption(Exception):
    """What a scenario raises inside the block."""


@dataclass(frozen=True)
class Bench:
    """An engine, the plain model with the same weights, and a batch of this rank's own."""

    accelerator: Any
    engine: Any
    plain: Any
    batch: dict[str, Any]


def build_bench(rank: Rank) -> Bench:
    """The tiny model in an engine of the variant's ZeRO stage, and once more outside of it."""
    import torch
    from accelerate import Accelerator
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(rank.spec.model_dir, padding_side="left")
    # Before DeepSpeed is configured: afterwards transformers would shard this model as well.
    plain = AutoModelForCausalLM.from_pretrained(rank.spec.model_dir).to(rank.device)
    strategies.configure_by_environment(rank)
    accelerator = Accelerator()
    settings = accelerator.state.deepspeed_plugin.deepspeed_config
    settings["train_micro_batch_size_per_gpu"] = 2  # accelerate reads it off a dataloader else
    model = AutoModelForCausalLM.from_pretrained(rank.spec.model_dir)
    weights.assert_loaded(rank, model, "policy")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    engine, _ = accelerator.prepare(model, optimizer)
    strategies.assert_engine(rank, engine)
    first = 2 * rank.rank
    texts = [data.PROMPTS[(first + i) % len(data.PROMPTS)] for i in range(2)]
    batch = dict(tokenizer(texts, return_tensors="pt", padding=True).to(rank.device))
    return Bench(accelerator, engine, plain, batch)


def train_step(bench: Bench) -> float:
    """One step of the engine; returns its loss."""
    bench.engine.train()
    loss = loss_of(bench.engine, bench.batch)
    bench.accelerator.backward(loss)  # accelerate lets the engine step here
    bench.engine.eval()
    return float(loss.detach())


def follow(bench: Bench) -> None:
    """Gives the plain model the engine's weights of now."""
    import torch

    state = weights.full_state(bench.engine.module)
    with torch.no_grad():
        for name, parameter in bench.plain.named_parameters():
            parameter.copy_(state[name])


def assert_trains(rank: Rank, bench: Bench, moment: str) -> None:
    """Post-condition: a step has the plain model's loss and changes the weights."""
    import torch

    follow(bench)
    before = weights.full_state(bench.engine.module)
    with torch.no_grad():
        expected = float(loss_of(bench.plain, bench.batch))
    found = train_step(bench)
    rank.check(
        f"loss-{moment}",
        abs(found - expected) <= 1e-4 * abs(expected),
        f"the loss {moment} is not that of the same model without DeepSpeed",
    )
    changed = weights.difference(before, weights.full_state(bench.engine.module))
    rank.check(f"trained-{moment}", changed, f"a training step {moment} changed no tensor")


def find_helper(rank: Rank, *, with_option: bool) -> Callable[..., Any]:
    """TRL's context manager; the cell ends where it lacks the option that is asked for."""
    from trl.models import utils

    helper: Callable[..., Any] = utils.unwrap_model_for_generation
    if with_option and not trainers.takes(helper, ARGUMENT):
        rank.not_applicable(
            f"unwrap_model_for_generation has no {ARGUMENT} yet", since=FIRST_WITH_OPTION
        )
    return helper


def yields_once(rank: Rank) -> None:
    """Without gathering the block runs once, on sharded parameters, and leaves the hooks alone.

    It generates, and a training step follows.
    """
    helper = find_helper(rank, with_option=True)
    bench = build_bench(rank)
    sharded = rank.condition("zero_stage") == 3
    hooks = hooks_of(bench.engine)
    entered = 0
    with helper(bench.engine, bench.accelerator, **{ARGUMENT: False}) as model:
        entered += 1
        rank.check("unwrapped", model is bench.engine.module, "not the bare model of the engine")
        rank.check(
            "sharded-inside",
            all_sharded(model) if sharded else all_whole(model),
            f"{ARGUMENT}=False gathers the parameters all the same",
        )
        rank.check("hooks-inside", hooks_of(bench.engine) == hooks, "hooks differ inside the block")
        generate(model, bench.batch, NEW_TOKENS)
    rank.check("entered-once", entered == 1, "the block did not run exactly once")
    rank.check("hooks-after", hooks_of(bench.engine) == hooks, "hooks differ after the block")
    assert_trains(rank, bench, "afterwards")


def same_tokens(rank: Rank) -> None:
    """Trained weights generate the same tokens gathered, sharded and without DeepSpeed."""
    import torch

    helper = find_helper(rank, with_option=True)
    bench = build_bench(rank)
    train_step(bench)
    follow(bench)
    expected = generate(bench.plain.eval(), bench.batch, NEW_TOKENS)
    with helper(bench.engine, bench.accelerator, **{ARGUMENT: False}) as model:
        sharded = generate(model, bench.batch, NEW_TOKENS)
    with helper(bench.engine, bench.accelerator, **{ARGUMENT: True}) as model:
        gathered = generate(model, bench.batch, NEW_TOKENS)
    rank.precondition(
        "several-tokens",
        len(set(expected.sequences[:, -NEW_TOKENS:].flatten().tolist())) > 1,
        "the model repeats one token: equal tokens would prove nothing",
    )
    for name, found in (("sharded", sharded), ("gathered", gathered)):
        rank.check(
            f"tokens-{name}",
            torch.equal(found.sequences, expected.sequences),
            f"tokens generated from {name} parameters differ from the plain model's",
        )
        rank.check(
            f"scores-{name}",
            torch.allclose(
                torch.stack(found.scores), torch.stack(expected.scores), rtol=1e-4, atol=1e-4
            ),
            f"scores from {name} parameters differ from the plain model's",
        )


def restores_after_exception(rank: Rank) -> None:
    """The gathering block gives hooks back and training goes on, even when the block raises."""
    helper = find_helper(rank, with_option=False)
    bench = build_bench(rank)
    hooks = hooks_of(bench.engine)
    with helper(bench.engine, bench.accelerator) as model:
        rank.check("whole-inside", all_whole(model), "parameters are not gathered in the block")
    rank.check("hooks-after", hooks_of(bench.engine) == hooks, "hooks differ after the block")
    raised = False
    try:
        with helper(bench.engine, bench.accelerator):
            raise Interruption("interrupted while generating")
    except Interruption:
        raised = True
    rank.check("exception-passed-on", raised, "the exception of the block did not come through")
    restored = hooks_of(bench.engine) == hooks
    if not restored:
        rank.observe("consequence", consequence_of_lost_hooks(bench))
    rank.check("hooks-restored", restored, "DeepSpeed's hooks are gone after an exception")
    rank.check(
        "released", left_whole(bench.engine, bench.batch) == 0, "a forward leaves parameters whole"
    )
    assert_trains(rank, bench, "afterwards")


def restores_checkpointing(rank: Rank) -> None:
    """The block switches gradient checkpointing off at most for itself, even when it raises."""
    helper = find_helper(rank, with_option=False)
    bench = build_bench(rank)
    bare = bench.engine.module
    bare.gradient_checkpointing_enable()
    with helper(bench.engine, bench.accelerator):
        pass
    rank.check(
        "checkpointing-after", bare.is_gradient_checkpointing, "gradient checkpointing is left off"
    )
    with contextlib.suppress(Interruption), helper(bench.engine, bench.accelerator):
        raise Interruption("interrupted while generating")
    rank.check(
        "checkpointing-restored",
        bare.is_gradient_checkpointing,
        "gradient checkpointing is left off after an exception",
    )


def consequence_of_lost_hooks(bench: Bench) -> dict[str, str]:
    """What the missing hooks do to a user; for the evidence only."""
    found: dict[str, str] = {}
    for name, action in (
        ("parameters a forward leaves whole", lambda: left_whole(bench.engine, bench.batch)),
        ("loss of a step", lambda: round(train_step(bench), 3)),
    ):
        try:
            found[name] = str(action())
        except Exception as error:
            found[name] = f"{type(error).__name__}: {error}"
    return found


def option_in_config(rank: Rank) -> None:
    """Every config of an online trainer that can have the option has it, on by default."""
    if not at_least("trl", FIRST_WITH_OPTION):
        rank.not_applicable(f"no config has {OPTION} yet", since=FIRST_WITH_OPTION)
    names = ["PPO", "RLOO", "Online DPO"] + ["GRPO"] * at_least("trl", "0.15.0")
    for name in names:
        try:
            _, config_class = trainers.find(name)
        except NotApplicable:
            continue
        defaults = {field.name: field.default for field in dataclasses.fields(config_class)}
        rank.check(
            f"{name}-default", defaults.get(OPTION) is True, f"{OPTION} is not on by default"
        )
        arguments = trainers.quiet_arguments(config_class, num_generations=2, **{OPTION: False})
        config = config_class(output_dir=str(rank.folder / "out"), **arguments)
        rank.check(f"{name}-kept", getattr(config, OPTION) is False, f"{OPTION}=False is not kept")


@contextlib.contextmanager
def watched_generation(rank: Rank) -> Iterator[None]:
    """Checks, whenever a model generates, that its parameters are as the option says.

    A check that fails raises out of ``generate``: what later becomes of the training is moot.
    """
    from transformers import GenerationMixin

    original = GenerationMixin.generate

    def generate(model: Any, *args: Any, **kwargs: Any) -> Any:
        right = all_sharded(model) if rank.condition("zero_stage") == 3 else all_whole(model)
        rank.check("option-honoured", right, f"{OPTION}=False is ignored")
        return original(model, *args, **kwargs)

    GenerationMixin.generate = generate
    try:
        yield
    finally:
        GenerationMixin.generate = original


def with_option_off(rank: Rank, trainer: str, since: str, **candidates: Any) -> tuple[Any, Any]:
    """A trainer's class and a config that tells it not to gather."""
    trainer_class, config_class = trainers.find(trainer)
    if not trainers.takes(config_class, OPTION):
        rank.not_applicable(f"{config_class.__name__} has no {OPTION} yet", since=since)
    arguments = trainers.quiet_arguments(config_class, **{OPTION: False}, **candidates)
    return trainer_class, config_class(output_dir=str(rank.folder / "out"), **arguments)


def build_grpo(rank: Rank) -> Any:
    """A GRPO trainer that is told not to gather."""
    trainer_class, config = with_option_off(
        rank,
        "GRPO",
        "0.15.0",
        **strategies.deepspeed_argument(rank),
        max_steps=1,
        num_generations=2,
        max_completion_length=4,
        beta=0.0,
        # TRL from 0.27.0 asks for device_map="auto", which ZeRO-3 refuses.
        model_init_kwargs={"device_map": None},
    )

    def reward_by_place(completions: list[Any], **_: Any) -> list[float]:
        return [float(place) for place in range(len(completions))]  # differs in every group

    return trainer_class(
        model=rank.spec.model_dir,
        reward_funcs=reward_by_place,
        args=config,
        train_dataset=data.prompt_dataset(),
    )


def build_ppo(rank: Rank) -> Any:
    """A PPO trainer that is told not to gather: where the double yield was reported."""
    from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer

    strategies.configure_by_environment(rank)
    trainer_class, config = with_option_off(rank, "PPO", FIRST_WITH_OPTION, **ppo.one_batch(rank))
    tokenizer = AutoTokenizer.from_pretrained(rank.spec.model_dir, padding_side="left")
    causal, scoring = (
        functools.partial(kind.from_pretrained, rank.spec.model_dir)
        for kind in (AutoModelForCausalLM, AutoModelForSequenceClassification)
    )
    return ppo.trainer(
        rank,
        trainer_class,
        config,
        tokenizer,
        policy=causal(),
        reference=causal(),
        reward=scoring(num_labels=1),
        value=scoring(num_labels=1),
    )


def trainer_honours_option(rank: Rank) -> None:
    """A trainer that is told not to gather generates on sharded parameters, and goes on."""
    if rank.condition("trainer") == "PPO":
        trainer = build_ppo(rank)
        policy = getattr(trainer.model, "module", trainer.model).policy
    else:
        trainer = build_grpo(rank)
        policy = trainer.model
    weights.assert_loaded(rank, policy, "policy")

    def reached(*_: Any, **__: Any) -> Any:
        raise Interruption("the loss is asked for: generation is over")

    # GRPO stops there: TRL 1.16's fused output layer has a failure of its own under ZeRO-3, for
    # models whose embeddings are not tied.  PPO has no such method and trains to its end.
    trainer.compute_loss = reached
    with watched_generation(rank), contextlib.suppress(Interruption):
        trainer.train()
    strategies.assert_engine(rank, trainer.model_wrapped)
    generated = any(check["name"] == "option-honoured" for check in rank.checks)
    rank.check("generated", generated, "the trainer never called generate")


FACETS: dict[str, Callable[[Rank], None]] = {
    "yields-once": yields_once,
    "same-tokens": same_tokens,
    "restores-after-exception": restores_after_exception,
    "restores-checkpointing": restores_checkpointing,
    "option-in-config": option_in_config,
    "trainer-honours-option": trainer_honours_option,
}


def scenario(rank: Rank) -> None:
    FACETS[rank.condition("facet")](rank)


def gather_in_else() -> str:
    """Wrong fix: the helper as article 003 has it, which gathers when it is told not to."""
    from trl.models import utils

    from trl_compat.fixes.unwrap_double_yield import replace_everywhere

    helper = utils.unwrap_model_for_generation

    @contextlib.contextmanager
    def unwrap(model: Any, accelerator: Any, *args: Any, **kwargs: Any) -> Iterator[Any]:
        import deepspeed

        if kwargs.get(ARGUMENT, True):
            with helper(model, accelerator, *args, **kwargs) as unwrapped:
                yield unwrapped
        else:
            with deepspeed.zero.GatheredParameters(model.parameters()):
                yield accelerator.unwrap_model(model)

    replace_everywhere(helper, functools.wraps(helper)(unwrap))
    return "applied: gathers in the else branch"
