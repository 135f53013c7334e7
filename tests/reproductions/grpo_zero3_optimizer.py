"""grpo-zero3-optimizer: GRPO generates under ZeRO-3 with the bare model in place of the engine.

``unwrap_model_for_generation`` takes ZeRO-3's hooks off through the engine's ``optimizer``.  Given
the bare model it finds none: it crashes (huggingface/trl#2782), or, once it was taught to look the
other way (#2776), leaves the hooks on.  Weights gathered for generation are then given back while
it still runs, and weights handed over to vLLM inside a gradient accumulation end in DeepSpeed's
``assert not param.ds_active_sub_modules`` (#2877, huggingface/open-r1#299).

The variant's ``facet`` says which side of it is provoked:

``train``   GRPO trains, evaluates and saves;
``vllm``    GRPO hands its weights over to vLLM, in whose place a recorder stands;
``helper``  the context manager alone, given the bare model of an engine that accelerate made.  It
            needs no GRPO, so it reaches back to the releases before it;
``any``     ``train`` where the release has GRPO, ``helper`` where it has not: for the control.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

from trl_compat.runtime import data, strategies, trainers, weights
from trl_compat.runtime.context import Rank, at_least

NEW_TOKENS = 4
Hooks = dict[str, tuple[int, int]]


def reward_by_letters(completions: Sequence[str], **columns: Any) -> list[float]:
    """A reward that differs between almost any two completions, so that there is a gradient."""
    return [float(sum(map(ord, completion)) % 97) for completion in completions]


def build_trainer(rank: Rank, rows_per_rank: int, **options: Any) -> Any:
    """A GRPO trainer around the tiny model, with two completions to a prompt."""
    trainer_class, config_class = trainers.find("GRPO")
    config = config_class(
        output_dir=str(rank.folder / "out"),
        **trainers.quiet_arguments(
            config_class,
            num_generations=2,
            max_prompt_length=32,
            max_completion_length=NEW_TOKENS,
            per_device_eval_batch_size=2,
            beta=0.04,  # 0 would leave the reference model out
            **options,
        ),
        **strategies.deepspeed_argument(rank),
    )
    trainer = trainer_class(
        model=rank.spec.model_dir,
        reward_funcs=reward_by_letters,
        args=config,
        train_dataset=data.prompt_dataset(rows=rows_per_rank * rank.world_size),
        eval_dataset=data.prompt_dataset(rows=rank.world_size),
    )
    weights.assert_loaded(rank, trainer.model, "policy")
    reference = getattr(trainer.ref_model, "module", trainer.ref_model)  # an engine by now
    weights.assert_loaded(rank, reference, "reference model")
    return trainer


def at_train_begin(trainer: Any, action: Callable[[], None]) -> None:
    """Calls ``action`` when ``train()`` has made the engine and no step has been taken."""
    from transformers import TrainerCallback

    class AtBegin(TrainerCallback):  # type: ignore[misc]  # transformers is untyped here
        def on_train_begin(self, *_args: Any, **_kwargs: Any) -> None:
            action()

    trainer.add_callback(AtBegin())


def can_evaluate(trainer: Any) -> bool:
    """Whether this release can evaluate GRPO; 0.14.0 cannot, with or without DeepSpeed."""
    return "prediction_step" in vars(type(trainer))


def hooks_of(module: Any) -> Hooks:
    """How many hooks run before and after the forward pass of each submodule."""
    return {
        name: (len(part._forward_pre_hooks), len(part._forward_hooks))
        for name, part in module.named_modules()
    }


def holds_whole(module: Any) -> bool:
    """Whether no parameter of a module is a mere shard."""
    return all(parameter.numel() > 0 for parameter in module.parameters())


@contextlib.contextmanager
def watched_generation(model: Any) -> Iterator[list[bool]]:
    """Notes at the end of each ``generate`` whether the model still holds all its weights."""
    generate, whole = model.generate, []

    def watched(*args: Any, **kwargs: Any) -> Any:
        tokens = generate(*args, **kwargs)
        whole.append(holds_whole(model))
        return tokens

    model.generate = watched
    try:
        yield whole
    finally:
        del model.generate


def check_restored(rank: Rank, module: Any, before: Hooks) -> None:
    """Post-condition: the model is as it was, every parameter sharded and none of them in use."""
    in_use = [
        name
        for name, parameter in module.named_parameters()
        if getattr(parameter, "ds_active_sub_modules", ())
    ]
    rank.check("none-in-use", not in_use, f"parameters still in use by submodules: {in_use}")
    after = hooks_of(module)
    changed = sorted(name for name in before if before[name] != after.get(name))
    rank.check(
        "hooks-restored", before and not changed, f"modules with other hooks than before: {changed}"
    )
    if rank.condition("zero_stage") == 3:
        whole = [name for name, parameter in module.named_parameters() if parameter.numel()]
        rank.check("sharded-again", not whole, f"parameters not sharded any more: {whole}")


def train(rank: Rank) -> None:
    """GRPO trains two steps, evaluates and saves."""
    trainer = build_trainer(rank, rows_per_rank=2, max_steps=2)
    before = weights.full_state(trainer.model)
    hooks: Hooks = {}

    def engine_is_there() -> None:
        strategies.assert_engine(rank, trainer.model_wrapped)
        hooks.update(hooks_of(trainer.model))

    at_train_begin(trainer, engine_is_there)
    with watched_generation(trainer.model) as whole:
        trainer.train()
        if can_evaluate(trainer):
            rank.check("evaluated", "eval_loss" in trainer.evaluate(), "evaluation gave no loss")
    trained = weights.full_state(trainer.model)
    rank.check("trained", weights.difference(before, trained), "training changed no tensor")
    trainer.save_model(str(rank.folder / "saved"))
    if rank.main:
        wrong = weights.difference(trained, weights.saved_state(rank.folder / "saved"))
        rank.check("saved-tensors", not wrong, f"saved checkpoint is not the policy: {wrong}")
    check_restored(rank, trainer.model, hooks)
    rank.check("generated", whole, "nothing was generated")
    rank.check(
        "whole-while-generating",
        all(whole),
        "weights gathered for generation were given back while it ran: the hooks were left on",
    )


class Recorder:
    """Stands where GRPO has its vLLM engine: keeps the weights it is given, draws tokens.

    Attributes:
        loads: what was handed over, one dictionary for each time.
        micro_steps: for each time, how many micro-batches DeepSpeed had counted.
    """

    def __init__(self, trainer: Any, completions: int) -> None:
        self.trainer, self.completions = trainer, completions
        self.loads: list[dict[str, Any]] = []
        self.micro_steps: list[int] = []
        self.drawn = 0
        runner = SimpleNamespace(model=self)
        executor = SimpleNamespace(driver_worker=SimpleNamespace(model_runner=runner))
        self.llm_engine = SimpleNamespace(model_executor=executor)

    def load_weights(self, tensors: Iterable[tuple[str, Any]]) -> None:
        self.loads.append({name: tensor.detach().cpu().clone() for name, tensor in tensors})
        self.micro_steps.append(getattr(self.trainer.model_wrapped, "micro_steps", 0))

    def draw(self) -> Any:
        self.drawn += 1
        return SimpleNamespace(token_ids=[10 + 7 * self.drawn % 89 + n for n in range(NEW_TOKENS)])

    def generate(self, prompts: Sequence[str], **_options: Any) -> list[Any]:
        return [
            SimpleNamespace(outputs=[self.draw() for _ in range(self.completions)]) for _ in prompts
        ]


def hand_over(rank: Rank) -> None:
    """GRPO hands weights to vLLM once a step, in an epoch that ends inside an accumulation.

    The epoch has an odd number of micro-batches and two make a step: transformers counts the last
    one as a step, DeepSpeed as half of one (accelerate tells it from 1.8.0 on), so that the next
    epoch begins with parameters that are still in use.
    """
    if at_least("trl", "0.16.0"):
        rank.not_applicable(
            "an epoch ends with a whole accumulation, and weights go to a vLLM server",
            until="0.15.2",
        )
    # Three micro-batches to an epoch: a batch once counted prompts, and completions afterwards.
    counts_completions = "_get_train_sampler" in vars(trainers.find("GRPO")[0])
    trainer = build_trainer(
        rank,
        rows_per_rank=3 if counts_completions else 6,
        gradient_accumulation_steps=2,
        max_steps=4,  # two epochs; DeepSpeed ends them with a whole step
    )
    before = weights.full_state(trainer.model)
    recorder = Recorder(trainer, completions=1 if counts_completions else 2)
    trainer.args.use_vllm = trainer.use_vllm = True
    trainer.llm, trainer.sampling_params, trainer._last_loaded_step = recorder, None, 0
    rank.use_stand_in("vllm-recorder-1")
    hooks: Hooks = {}

    def engine_is_there() -> None:
        strategies.assert_engine(rank, trainer.model_wrapped)
        hooks.update(hooks_of(trainer.model))

    at_train_begin(trainer, engine_is_there)
    trainer.train()
    trained = weights.full_state(trainer.model)
    rank.check("trained", weights.difference(before, trained), "training changed no tensor")
    check_restored(rank, trainer.model, hooks)
    if rank.main:
        rank.observe("handed_over_after_micro_steps", recorder.micro_steps)
        rank.check("handed-over", len(recorder.loads) >= 2, "weights were not handed over")
        for load in recorder.loads:
            torn = [name for name in before if before[name].shape != load[name].shape]
            rank.check("handed-over-whole", not torn, f"vLLM was given shards of {torn}")
            changed = weights.difference(before, load)
            rank.check("handed-over-trained", changed, "vLLM was given the untrained weights")


def prepare_engine(rank: Rank) -> tuple[Any, Any, Any]:
    """The accelerator, and the tiny model prepared by it: an engine and its optimizer."""
    import torch
    from accelerate import Accelerator
    from torch.utils.data import DataLoader
    from transformers import AutoModelForCausalLM

    strategies.configure_by_environment(rank)
    accelerator = Accelerator()
    model = AutoModelForCausalLM.from_pretrained(rank.spec.model_dir)
    weights.assert_loaded(rank, model, "model")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    # DeepSpeed's "auto" batch size is read off a loader.
    loader = DataLoader([0] * rank.world_size, batch_size=1)
    engine, optimizer, _ = accelerator.prepare(model, optimizer, loader)
    strategies.assert_engine(rank, engine)
    return accelerator, engine, optimizer


def greedy_tokens(model: Any, prompt: Any) -> list[int]:
    """What a model goes on with after the prompt, without drawing lots."""
    tokens = model.generate(
        prompt, max_new_tokens=NEW_TOKENS, min_new_tokens=NEW_TOKENS, do_sample=False
    )
    continuation: list[int] = tokens[0, prompt.shape[1] :].tolist()
    return continuation


def unwrap_bare_model(rank: Rank) -> None:
    """Generates, takes a step and generates again, with the bare model given to the helper."""
    import torch
    from transformers import AutoModelForCausalLM
    from trl.models.utils import unwrap_model_for_generation

    # Loaded before DeepSpeed is switched on, so never sharded.
    twin = AutoModelForCausalLM.from_pretrained(rank.spec.model_dir).to(rank.device).eval()
    accelerator, engine, optimizer = prepare_engine(rank)
    bare = accelerator.unwrap_model(engine)
    hooks = hooks_of(bare)
    before = weights.full_state(bare)
    prompt = torch.tensor([[10, 20, 30, 40, 50]], device=rank.device)
    whole: list[bool] = []

    def generate_and_compare(name: str) -> None:
        twin.load_state_dict(weights.full_state(bare), strict=False)  # a tied head is left out
        expected = greedy_tokens(twin, prompt)
        bare.eval()
        with (
            torch.no_grad(),
            watched_generation(bare) as watched,
            unwrap_model_for_generation(bare, accelerator) as unwrapped,
        ):
            found = greedy_tokens(unwrapped, prompt)
        whole.extend(watched)
        rank.check(name, found == expected, f"tokens {found} instead of {expected}")
        check_restored(rank, bare, hooks)

    generate_and_compare("tokens-before-step")
    engine.train()
    accelerator.backward(engine(input_ids=prompt, labels=prompt).loss)
    optimizer.step()
    trained = weights.full_state(bare)
    rank.check("trained", weights.difference(before, trained), "the step changed no tensor")
    generate_and_compare("tokens-after-step")
    # Releases from 0.15.0 on leave the hooks on for a bare model: right, and slow.
    rank.observe("whole_while_generating", all(whole))


def scenario(rank: Rank) -> None:
    facet = rank.condition("facet", "train")
    if facet == "any":
        facet = "train" if at_least("trl", "0.14.0") else "helper"
    {"train": train, "vllm": hand_over, "helper": unwrap_bare_model}[facet](rank)


def _patch_hook_functions(guard: Callable[[Callable[[Any], None]], Callable[[Any], None]]) -> None:
    from trl.models import utils

    utils.remove_hooks = guard(utils.remove_hooks)
    utils.add_hooks = guard(utils.add_hooks)


def guard_only() -> str:
    """What TRL 0.15.0 did (#2776): no optimizer, nothing to do."""

    def guard(function: Callable[[Any], None]) -> Callable[[Any], None]:
        return lambda model: function(model) if hasattr(model, "optimizer") else None

    _patch_hook_functions(guard)
    return "applied: models without an optimizer are passed over"


def optimizer_attribute() -> str:
    """Takes the message at its word and gives every model the attribute."""
    from transformers import PreTrainedModel

    PreTrainedModel.optimizer = None
    return "applied: models have an attribute optimizer"
