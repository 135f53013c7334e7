"""supervised: exactly the tokens that should carry loss do, in TRL's SFT trainer.

The rows are made of words that are a token each and occur once in the whole dataset, so that a
token in a batch says from which row and place it comes.  What the model is called with is kept by a
hook in front of its ``forward``: the ids, the labels and the mask of a real training step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from trl_compat.runtime import measuring, sft, steps
from trl_compat.runtime.context import Rank, at_least

PACKED = 16  # tokens of a packed row
SHORT = 6  # tokens that are kept of a row that is too long
LEAK = 1e-6  # of a logit in float64; rounding changes less
LONG = 2 * SHORT + 2  # words of a row whose first half alone is too long

COMPLETIONS = ("completion", "truncated-away")  # facets whose rows are prompts and completions

Place = tuple[int, int]  # row of the dataset and place in it
PADDING, OTHER = (-1, 0), (-1, 1)


def tokenizer_of(rank: Rank) -> Any:
    """The model's tokenizer, as TRL asks for it: padding to the right."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(rank.spec.model_dir, padding_side="right")
    if rank.condition("pad_token") == "eos":
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def words(tokenizer: Any) -> Iterator[str]:
    """Words that are one token wherever they stand, each with the space before it."""
    for piece, number in sorted(tokenizer.get_vocab().items(), key=lambda item: item[1]):
        word = piece.replace("\u0120", " ").replace("\u2581", " ")
        if word[:1] == " " and word[1:].isalpha() and word.isascii():
            alone = tokenizer(word, add_special_tokens=False)["input_ids"]
            if alone == [number]:
                yield word


def lengths(rank: Rank) -> list[int]:
    """How many words each row has."""
    rows = steps.rows_of_a_step(rank)
    if rank.condition("facet") != "packed":
        usual = [3 + (5 * row) % 7 for row in range(rows)]
        too_long = rank.condition("facet") == "truncated-away" and not dropped(rank)
        return [LONG] * rows + usual if too_long else usual
    # Two and two fill a packed row, whichever way they are packed: with the special tokens.
    special = 1 + len(tokenizer_of(rank)("")["input_ids"])
    pairs = [(9 + row % 5, PACKED - 9 - row % 5) for row in range(rows)]
    return [length - special for pair in pairs for length in pair]


def dropped(rank: Rank) -> bool:
    """Whether the script leaves out the rows whose prompts are too long."""
    return bool(rank.condition("long_prompts") == "dropped")


def longest(rank: Rank) -> int:
    """The ``max_length`` of the variant."""
    usual = {"truncated": SHORT, "truncated-away": SHORT, "packed": PACKED}
    return int(rank.condition("max_length", usual.get(rank.condition("facet"), 64)))


def columns(rank: Rank, tokenizer: Any) -> dict[str, list[str]]:
    """The dataset of the facet."""
    supply = words(tokenizer)
    texts = ["".join(next(supply) for _ in range(length)) for length in lengths(rank)]
    if rank.condition("texts_end_in") == "eos":
        texts = [text + tokenizer.eos_token for text in texts]
    if rank.condition("facet") not in COMPLETIONS:
        return {rank.condition("text_field", "text"): texts}
    halves = [(text.split(" ")[1:], len(text.split(" ")) // 2) for text in texts]
    return {
        "prompt": [" " + " ".join(parts[:at]) for parts, at in halves],
        "completion": [" " + " ".join(parts[at:]) for parts, at in halves],
    }


def rows(rank: Rank, tokenizer: Any, given: Mapping[str, Sequence[str]]) -> list[list[int]]:
    """The token ids of every row as the release says that it makes them, before truncation."""
    texts = ["".join(parts) for parts in zip(*given.values(), strict=True)]
    found = [list(tokenizer(text)["input_ids"]) for text in texts]
    end = tokenizer.eos_token_id
    # Without packing, EOS is added from 0.16.0 on (#3091); before, what the text says is all.
    added = at_least("trl", "0.16.0") or rank.condition("facet") == "packed"
    return [[*ids, end] if added and ids[-1] != end else ids for ids in found]


def right(rank: Rank, tokenizer: Any, given: Mapping[str, Sequence[str]]) -> dict[Place, int]:
    """The places that should carry loss, with the token that each has."""
    found = {
        (row, at): token
        for row, ids in enumerate(rows(rank, tokenizer, given))
        for at, token in enumerate(ids)
    }
    if rank.condition("facet") in ("truncated", "truncated-away"):
        found = {place: token for place, token in found.items() if place[1] < longest(rank)}
    if rank.condition("facet") in COMPLETIONS:
        prompts = [len(tokenizer(prompt)["input_ids"]) for prompt in given["prompt"]]
        found = {place: token for place, token in found.items() if place[1] >= prompts[place[0]]}
    return found


def watched(trainer: Any) -> list[dict[str, list[list[int]]]]:
    """What the model will be called with, filled while the trainer trains."""
    seen: list[dict[str, list[list[int]]]] = []
    names = ("input_ids", "labels", "attention_mask", "position_ids")

    def keep(_module: Any, _args: Any, given: dict[str, Any]) -> None:
        seen.append({n: given[n].tolist() for n in names if given.get(n) is not None})

    trainer.model.register_forward_pre_hook(keep, with_kwargs=True)
    return seen


def make_flat(trainer: Any, tokenizer: Any) -> None:
    """Gives the trainer TRL's collator that joins the texts of a batch without padding.

    The trainer itself gives position ids with it only under flash attention, which needs a GPU.
    Other attention finds in them where a text begins, too, if there is no attention mask.
    """
    from trl.trainer.sft_trainer import DataCollatorForLanguageModeling

    trainer.data_collator = DataCollatorForLanguageModeling(
        pad_token_id=tokenizer.pad_token_id, padding_free=True
    )


def in_order(trainer: Any) -> None:
    """Lets the trainer take the rows in their order, so that whole steps have rows of one kind."""
    from torch.utils.data import SequentialSampler

    trainer._get_train_sampler = lambda *_: SequentialSampler(trainer.train_dataset)


def empty(seen: Sequence[Mapping[str, list[list[int]]]], logs: Sequence[Any]) -> dict[str, Any]:
    """How many rows were trained on though nothing of them carries loss, and what that logged."""
    labels = [labels for batch in seen for labels in batch["labels"]]
    return {
        "empty_rows": sum(set(of_row[1:]) == {-100} for of_row in labels),
        "zero_losses": sum(log.get("loss") == 0 for log in logs),
    }


def carried(
    seen: Sequence[Mapping[str, list[list[int]]]],
    known: Mapping[int, Place],
    start: int | None,
    end: int,
) -> tuple[Counter[Place], set[Place], set[Place]]:
    """Which places carried loss and how often, which are there, and which nothing can predict.

    Args:
        known: the place of every token that occurs once.
        start, end: BOS, which is told by what stands after it, and EOS, by what stands before.
    """
    loss: Counter[Place] = Counter()
    there: set[Place] = set()
    first: set[Place] = set()
    for batch in seen:
        for number, ids in enumerate(batch["input_ids"]):
            ones = [1] * len(ids)
            mask = batch.get("attention_mask", [ones] * (number + 1))[number]
            order = batch.get("position_ids", [ones] * (number + 1))[number]
            before = OTHER
            for at, (token, label) in enumerate(zip(ids, batch["labels"][number], strict=True)):
                place = known.get(token, OTHER)
                if not mask[at]:
                    place = PADDING
                elif token == start and at + 1 < len(ids):
                    after = known.get(ids[at + 1], OTHER)
                    place = (after[0], after[1] - 1) if after[0] >= 0 else OTHER
                elif token == end and before[0] >= 0:
                    place = (before[0], before[1] + 1)
                there.add(place)
                if at == 0 or order[at] == 0:
                    first.add(place)
                if at and label != -100:
                    loss[place if label == token else OTHER] += 1
                before = OTHER if token == end else place
    return loss, there, first


def leaks(rank: Rank, seen: Sequence[Mapping[str, list[list[int]]]]) -> int:
    """How many tokens of flat batches are predicted from another text as well.

    The model that the trainer calls is called again with what it was given, in float64, and with
    each text alone.
    """
    import torch

    model = measuring.twin(rank)
    found = 0
    for batch in seen:
        given = {n: torch.tensor(batch[n]) for n in batch if n != "labels"}
        starts = [at for at, place in enumerate(batch["position_ids"][0]) if place == 0]
        with torch.no_grad():
            together = model(**given, use_cache=False).logits[0]
            for start, end in zip(starts, [*starts[1:], len(together)], strict=True):
                alone = model(given["input_ids"][:, start:end], use_cache=False).logits[0]
                away = (together[start:end] - alone).abs().amax(-1)
                found += int((away > LEAK).sum())
    return found


def told(place: Place, tokenizer: Any, tokens: Mapping[Place, int]) -> str:
    """A place for people."""
    if place in tokens:
        token = tokenizer.convert_ids_to_tokens(tokens[place])
        return f"token {place[1]} of row {place[0]} ({token})"
    return "padding" if place == PADDING else "a token that is not of the dataset"


def compared(
    rank: Rank, tokenizer: Any, given: Mapping[str, Sequence[str]], seen: Sequence[Any]
) -> dict[str, Any]:
    """What carried loss, compared with what should have."""
    whole_rows = rows(rank, tokenizer, given)
    whole = {(row, at): token for row, ids in enumerate(whole_rows) for at, token in enumerate(ids)}
    end, start = tokenizer.eos_token_id, tokenizer.bos_token_id
    known = {token: place for place, token in whole.items() if token not in (end, start)}
    loss, there, first = carried(seen, known, start, end)
    should = Counter(set(right(rank, tokenizer, given)) - first)
    missing, extra = should - loss, loss - should
    wrong = [("missing", place) for place in missing] + [("extra", place) for place in extra]
    ends = [place for place in should if whole[place] == end]
    found: dict[str, Any] = {
        "missing": sum(missing.values()),
        "extra": sum(extra.values()),
        "eos": f"{sum(bool(loss[place]) for place in ends)} of {len(ends)}",
        "eos_there": f"{sum(place in there for place in ends)} of {len(ends)}",
        "rows": f"{len(whole_rows)} texts in {sum(len(batch['input_ids']) for batch in seen)} rows",
    }
    if wrong:
        how, place = min(wrong, key=lambda one: one[1])
        found["first_wrong"] = f"{how}: {told(place, tokenizer, whole)}"
    return found


def assert_padding_free(rank: Rank) -> None:
    """The releases that have the collator, and see boundaries without flash attention."""
    if not at_least("trl", "0.19.0"):
        rank.not_applicable("no collator of TRL that joins texts", since="0.19.0")
    if not (at_least("transformers", "4.54.0") and at_least("torch", "2.6.0")):
        since = "transformers 4.54.0 and torch 2.6.0"
        rank.not_applicable("only flash attention sees where a text begins", since=since)


def scenario(rank: Rank) -> None:
    facet = rank.condition("facet")
    if facet in COMPLETIONS and not at_least("trl", "0.17.0"):
        rank.not_applicable("no loss on the completion alone", since="0.17.0")
    tokenizer = tokenizer_of(rank)
    given = columns(rank, tokenizer)
    if facet == "padding-free":
        assert_padding_free(rank)
    most = longest(rank)
    trainer = sft.trainer(
        rank,
        columns=given,
        tokenizer=tokenizer,
        packing=facet == "packed",
        max_length=most,
        max_seq_length=most,
        dataset_text_field=rank.condition("text_field", "text"),
    )
    if flat := facet == "padding-free" and rank.condition("padding_free", True):
        make_flat(trainer, tokenizer)
    rows_made, taken = len(trainer.train_dataset), steps.rows_of_a_step(rank)
    count = 1
    if facet == "truncated-away":
        in_order(trainer)
        count = trainer.args.max_steps = max(1, rows_made // taken)
    rank.precondition(
        "one-step", rows_made <= count * taken, f"{rows_made} rows for {count} steps of {taken}"
    )
    seen = watched(trainer)
    logs = steps.take(rank, trainer, count).logs
    everything = [batch for mine in measuring.everyones(rank, seen) for batch in mine]

    def measured() -> dict[str, Any]:
        found = compared(rank, tokenizer, given, everything)
        if facet == "padding-free":
            return {**found, "leaks": leaks(rank, everything) if flat else 0}
        return {**found, **empty(everything, logs)} if facet == "truncated-away" else found

    measuring.judged(rank, "supervised", measured)
