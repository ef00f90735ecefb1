"""What is to be generated on one sequence."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from array import array

    from llamacy.core.logprobs import LogprobRecord
    from llamacy.generate.adapters import Applied
    from llamacy.generate.options import SamplingOptions
    from llamacy.grammar import Grammar


@dataclass(eq=False)
class Job:
    """One choice of a request, before and while it is generated.

    Parameters
    ----------
    prompt
        Tokens to go on from. Jobs that share the object share what is computed for it.
    max_tokens
        Most tokens to generate; 0 computes the prompt.
    options
        How tokens are picked.
    grammar, grammar_first
        What the text obeys, and whether it rules out tokens before one is chosen.
    spelled
        Special tokens that are spelled out in the text, and fit the grammar by their spelling.
    processors, criteria
        As for `Sequence`.
    logprobs, prompt_logprobs
        Take the log-probabilities of the generated tokens, and of those of the prompt after the first.
    cache_prompt
        Keep what the memory has of the prompt.
    n_keep
        Tokens that stay when a full context is shifted; None: it isn't.
    applied
        LoRA adapters that it is computed with; None leaves alone what the context applies.

    Attributes
    ----------
    n_cached
        Tokens of the prompt that were in the memory when it began.
    """

    prompt: array[int]
    max_tokens: int
    options: SamplingOptions
    grammar: Grammar | None = None
    grammar_first: bool = False
    spelled: frozenset[int] = frozenset()
    processors: tuple[Any, ...] = ()
    criteria: tuple[Any, ...] = ()
    logprobs: LogprobRecord | None = None
    prompt_logprobs: LogprobRecord | None = None
    cache_prompt: bool = True
    n_keep: int | None = None
    applied: Applied | None = None
    n_cached: int = field(default=0, init=False)

    @property
    def scores_prompt(self) -> bool:
        """Whether the log-probabilities of the prompt are wanted and not there yet."""
        return self.prompt_logprobs is not None and len(self.prompt_logprobs) < len(self.prompt) - 1
