"""From sampling options to a sampler chain, as llama.cpp's common/sampling.cpp makes it.

Links that would do nothing are left out, so that a chain of default options begins with top_k, which is fast.
"""

from __future__ import annotations

import math
from array import array
from typing import TYPE_CHECKING

from llamacy.core.min_tokens import end_tokens
from llamacy.core.reasoning_budget import closing_tokens
from llamacy.core.sampler import Sampler, SamplerChain

if TYPE_CHECKING:
    from collections.abc import Iterable

    from llamacy.core.vocab import Vocab
    from llamacy.generate.options import SamplingOptions
    from llamacy.types import AnyBuffer


def make_chain(
    options: SamplingOptions, vocab: Vocab, prompt: AnyBuffer | Iterable[int], n_ctx: int | None
) -> SamplerChain:
    """Return a new chain for a request; see `SamplingOptions.chain`."""
    biases = _biases(options, vocab)
    links = []
    if options.reasoning_budget >= 0:
        links.append(_reasoning_budget(options, vocab, biases))
    if biases:
        links.append(Sampler.logit_bias(vocab.n_tokens, biases))
    if options.min_tokens > 0 and not options.ignore_eos:
        links.append(Sampler.min_tokens(vocab, options.min_tokens))
    if options.mirostat_mode:
        links += _mirostat(options, vocab)
        return SamplerChain(links)
    order = _order(options)
    greedy = "temperature" in order and options.temperature <= 0 and options.dynatemp_range == 0
    if greedy:
        order = _before_greedy(options, order[: order.index("temperature")])
    for name in order:
        link = _link(options, name, vocab, prompt, n_ctx)
        if link is not None:
            links.append(link)
    if greedy:
        links.append(Sampler.greedy())
    elif options.adaptive_target >= 0 or "adaptive_p" in order:
        links.append(Sampler.adaptive_p(options.adaptive_target, options.adaptive_decay, options.drawn_seed))
    else:
        links.append(Sampler.dist(options.drawn_seed))
    return SamplerChain(links)


def _order(options: SamplingOptions) -> list[str]:
    order = list(options.samplers)
    if options.use_infill and "infill" not in order:
        order.insert(order.index("temperature") if "temperature" in order else len(order), "infill")
    return order


def _before_greedy(options: SamplingOptions, order: list[str]) -> list[str]:
    """Leave out what keeps the most likely token anyway, unless something would drop that one."""
    if options.typical_p < 1 or options.xtc_probability > 0 or "infill" in order:
        return order
    return [name for name in order if name in ("penalties", "dry")]


def _link(
    options: SamplingOptions, name: str, vocab: Vocab, prompt: AnyBuffer | Iterable[int], n_ctx: int | None
) -> Sampler | None:
    """Return a link, or None when the options turn it off."""
    o = options
    if name == "top_k":
        return Sampler.top_k(o.top_k) if o.top_k > 0 else None
    if name == "top_p":
        return Sampler.top_p(o.top_p, o.min_keep) if o.top_p < 1 else None
    if name == "min_p":
        return Sampler.min_p(o.min_p, o.min_keep) if o.min_p > 0 else None
    if name == "temperature":
        if o.dynatemp_range > 0:
            return Sampler.temp_ext(o.temperature, o.dynatemp_range, o.dynatemp_exponent)
        return Sampler.temp(o.temperature) if o.temperature != 1 else None
    if name == "typical_p":
        return Sampler.typical(o.typical_p, o.min_keep) if o.typical_p < 1 else None
    if name == "top_n_sigma":
        return Sampler.top_n_sigma(o.top_n_sigma) if o.top_n_sigma > 0 else None
    if name == "xtc":
        on = o.xtc_probability > 0 and o.xtc_threshold <= 0.5
        return Sampler.xtc(o.xtc_probability, o.xtc_threshold, o.min_keep, o.drawn_seed) if on else None
    if name == "infill":
        return Sampler.infill(vocab)
    if name == "penalties" and (o.repeat_penalty != 1 or o.frequency_penalty != 0 or o.presence_penalty != 0):
        last_n = _last_n("penalty_last_n", o.penalty_last_n, n_ctx)
        if last_n:
            values = (o.repeat_penalty, o.frequency_penalty, o.presence_penalty)
            return _fed(Sampler.penalties(vocab.n_tokens, last_n, *values), prompt, last_n)
    if name == "dry" and o.dry_multiplier > 0:
        last_n = _last_n("dry_penalty_last_n", o.dry_penalty_last_n, n_ctx)
        if last_n:
            values = (o.dry_multiplier, o.dry_base, o.dry_allowed_length)
            return _fed(Sampler.dry(vocab, *values, last_n, o.dry_seq_breakers), prompt, last_n)
    return None


def _last_n(name: str, value: int, n_ctx: int | None) -> int:
    if value >= 0:
        return value
    if n_ctx is None:
        raise ValueError(f"{name}=-1 stands for the size of the context, so n_ctx must be given")
    return n_ctx


def _fed(sampler: Sampler, prompt: AnyBuffer | Iterable[int], last_n: int) -> Sampler:
    """Let a sampler accept what it can remember of the prompt."""
    try:
        tokens = memoryview(prompt)  # type: ignore[arg-type]
    except TypeError:
        tokens = memoryview(array("i", prompt))  # type: ignore[arg-type]
    if len(tokens):
        sampler.accept_all(tokens[-last_n:])
    return sampler


def _mirostat(options: SamplingOptions, vocab: Vocab) -> list[Sampler]:
    if options.temperature <= 0:
        return [Sampler.greedy()]
    values = (options.drawn_seed, options.mirostat_tau, options.mirostat_eta)
    pick = Sampler.mirostat(vocab.n_tokens, *values) if options.mirostat_mode == 1 else Sampler.mirostat_v2(*values)
    return [Sampler.temp(options.temperature), pick]


def _biases(options: SamplingOptions, vocab: Vocab) -> dict[int, float]:
    """Return what is added to each logit; -inf for the banned ones, those that the model itself bans among them."""
    biases = dict(options.logit_bias) if options.logit_bias else {}
    banned = [*options.suppress_tokens, *vocab.suppress_tokens]
    for name, tokens in (("logit_bias", biases), ("suppress_tokens", options.suppress_tokens)):
        for token in tokens:
            if token >= vocab.n_tokens:
                raise ValueError(f"{name}: there is no token {token}; the vocabulary has {vocab.n_tokens}")
    if options.ignore_eos:
        banned += end_tokens(vocab)
    for token in banned:
        biases[token] = -math.inf
    if biases and (options.use_infill or "infill" in options.samplers):
        end = vocab.eos if vocab.eot is None else vocab.eot
        if biases.get(end) == -math.inf:
            raise ValueError(f"infill ends the text with token {end}, which is banned")
    return biases


def _reasoning_budget(options: SamplingOptions, vocab: Vocab, biases: dict[int, float]) -> Sampler:
    message = options.reasoning_budget_message or ""
    end = options.reasoning_end if isinstance(options.reasoning_end, str) else next(iter(options.reasoning_end))
    for token in closing_tokens(vocab, message + end) if biases else ():
        if biases.get(token) == -math.inf:
            raise ValueError(
                f"token {token} of what ends the reasoning, {message + end!r}, is banned; allow it, or leave "
                "reasoning_budget out"
            )
    return Sampler.reasoning_budget(
        vocab,
        options.reasoning_budget,
        start=options.reasoning_start,
        end=options.reasoning_end,
        message=message,
        in_block=options.reasoning_start_in_prompt,
        start_within=options.reasoning_start_max_tokens,
    )
