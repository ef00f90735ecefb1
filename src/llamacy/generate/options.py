"""Sampling options of a request."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from llamacy.generate import sampling_chain, sampling_values
from llamacy.generate.names import raise_unknown
from llamacy.generate.sampling_values import ORDER

if TYPE_CHECKING:
    from llamacy.core.sampler import SamplerChain
    from llamacy.core.vocab import Vocab
    from llamacy.types import AnyBuffer

# spellings of llama.cpp, llama-cpp-python and OpenAI
_ALIASES = {
    "temp": "temperature",
    "typical": "typical_p",
    "typ_p": "typical_p",
    "mirostat": "mirostat_mode",
    "repeat_last_n": "penalty_last_n",
    "present_penalty": "presence_penalty",
    "dry_sequence_breakers": "dry_seq_breakers",
}


@dataclass(frozen=True)
class SamplingOptions:
    """How the next token is picked: the options of llama.cpp, with its defaults; `docs/sampling.md` explains them.

    Parameters
    ----------
    temperature
        Divides the logits; 0 or less picks the most likely token.
    dynatemp_range, dynatemp_exponent
        Let the temperature follow the entropy, within this range around `temperature`; 0 turns it off.
    top_k
        Keep the `top_k` most likely tokens; 0 or less keeps all.
    top_p
        Keep the most likely tokens that have this probability together; 1 keeps all.
    min_p
        Keep the tokens that have at least this share of the probability of the most likely one; 0 keeps all.
    typical_p
        Keep the tokens of the most typical information that have this probability together; 1 keeps all.
    top_n_sigma
        Keep the tokens within so many standard deviations of the highest logit; 0 or less keeps all.
    xtc_probability, xtc_threshold
        With this probability, drop all tokens of at least that probability but the least likely of them.
    mirostat_mode, mirostat_tau, mirostat_eta
        1 or 2: Mirostat, with its target surprise and learning rate, in place of all other samplers.
    adaptive_target, adaptive_decay
        Pick tokens near this probability on the average; below 0, don't.
    dry_multiplier, dry_base, dry_allowed_length, dry_penalty_last_n, dry_seq_breakers
        Lower the logits of tokens that would go on with a repetition; a multiplier of 0 turns it off, -1 tokens stand
        for the size of the context.
    penalty_last_n, repeat_penalty, frequency_penalty, presence_penalty
        Lower the logits of tokens among the last ones, those of the prompt included; -1 stands for the size of the
        context.
    logit_bias
        Mapping of token ids to what is added to their logits, or pairs of them; False, None and -inf ban a token.
    seed
        Seed of the random numbers; None, -1 and 2**32 - 1 draw one, which `drawn_seed` then tells.
    min_keep
        Tokens that top_p, min_p, typical_p and xtc leave at least.
    samplers
        Order of the samplers: names, or a text of llama.cpp's letters; a sampler that is not in it is not used.
    ignore_eos
        Ban all tokens that end the generation.
    min_tokens
        Ban them until so many tokens were generated.
    suppress_tokens
        Token ids to ban, besides those that the model says itself must not come.
    use_infill
        Filling in the middle: end early rather than ramble, and merge tokens with the same beginning.
    reasoning_budget, reasoning_budget_message
        Tokens after which a block of reasoning is ended, by this text and the end tag; -1 for no limit.
    reasoning_start, reasoning_end
        Tags of the block, each a text or several; the first end is what is written.
    reasoning_start_in_prompt
        The prompt has begun the block.
    reasoning_start_max_tokens
        A block that begins later than this is not reasoning, and left alone; 0 for no such limit.

    Raises
    ------
    TypeError, ValueError
        An option is of the wrong type or out of range, or another one would keep it from having any effect.
    """

    temperature: float = 0.8
    dynatemp_range: float = 0.0
    dynatemp_exponent: float = 1.0
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    typical_p: float = 1.0
    top_n_sigma: float = -1.0
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    mirostat_mode: int = 0
    mirostat_tau: float = 5.0
    mirostat_eta: float = 0.1
    adaptive_target: float = -1.0
    adaptive_decay: float = 0.9
    dry_multiplier: float = 0.0
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_penalty_last_n: int = 64
    dry_seq_breakers: Iterable[str] = ("\n", ":", '"', "*")
    penalty_last_n: int = 64
    repeat_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    logit_bias: Mapping[Any, Any] | Iterable[tuple[Any, Any]] | None = None
    seed: int | None = None
    min_keep: int = 0
    samplers: str | Iterable[str] = ORDER
    ignore_eos: bool = False
    min_tokens: int = 0
    suppress_tokens: Iterable[int] = ()
    use_infill: bool = False
    reasoning_budget: int = -1
    reasoning_budget_message: str | None = None
    reasoning_start: str | Iterable[str] = "<think>"
    reasoning_end: str | Iterable[str] = "</think>"
    reasoning_start_in_prompt: bool = False
    reasoning_start_max_tokens: int = 32

    def __post_init__(self) -> None:
        given = {name: value for name, value in self.__dict__.items() if value is not _DEFAULTS[name]}
        self.__dict__.update(sampling_values.checked(given))
        self.__dict__["seed"] = sampling_values.drawn_seed(self.seed)
        if given:
            sampling_values.check_together(self)

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Names of all options, other spellings included."""
        return (*cls.__dataclass_fields__, *_ALIASES)

    @property
    def drawn_seed(self) -> int:
        """The seed in use; the same one gives the same text again."""
        assert self.seed is not None
        return self.seed

    def chain(self, vocab: Vocab, prompt: AnyBuffer | Iterable[int] = (), *, n_ctx: int | None = None) -> SamplerChain:
        """Return a new sampler chain, in llama.cpp's order, that knows the prompt.

        Parameters
        ----------
        vocab
            Vocabulary of the model.
        prompt
            Token ids, best as an array of int32: penalties and DRY look at the last of them.
        n_ctx
            Size of the context, which `penalty_last_n` and `dry_penalty_last_n` of -1 stand for.

        Raises
        ------
        ValueError
            A token id is not in the vocabulary, or an option doesn't suit it.
        """
        return sampling_chain.make_chain(self, vocab, prompt, n_ctx)

    @classmethod
    def from_arguments(cls, arguments: Mapping[str, Any]) -> SamplingOptions:
        """Return the options for keyword arguments; None stands for the default, and other spellings are known.

        Raises
        ------
        TypeError
            There is no such option, or it is given twice.
        """
        options = {}
        for name, value in arguments.items():
            full = _ALIASES.get(name, name)
            if full not in cls.__dataclass_fields__:
                raise_unknown(name, cls.names())
            if value is None:
                continue
            if full in options:
                raise TypeError(f"{full} is given twice, also as {name if name != full else 'another spelling'}")
            options[full] = value
        return cls(**options)


_DEFAULTS = {field.name: field.default for field in fields(SamplingOptions)}
