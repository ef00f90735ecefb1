# distutils: language = c++
"""The samplers of llama.cpp: what picks the next token from the logits, and what prepares that choice."""

cimport cython
from cpython.number cimport PyNumber_Index
from libc.math cimport INFINITY, isfinite
from libc.stdint cimport INT32_MAX, INT32_MIN, int32_t, uint32_t
from libc.stdlib cimport free, malloc

from llamacy.core._handle cimport SAMPLER, handle_opened
from llamacy.core._watched_sampler cimport watched_sampler_new
from llamacy.core.dry_sampler cimport dry_breakers, dry_sampler_new
from llamacy.core.grammar_sampler cimport grammar_sampler_new
from llamacy.core.min_tokens cimport min_tokens_sampler_new
from llamacy.core.model cimport model_unuse, model_use
from llamacy.core.reasoning_budget cimport budget_sampler_new, budget_values
from llamacy.core.sampler_base cimport sampler_accept, sampler_acquire, sampler_release, sampler_set_model
from llamacy.core.vocab cimport Vocab, vocab_handle
from llamacy.native cimport llama as c_llama

from llamacy.errors import GrammarError, SamplerError
from llamacy.types import ReasoningTags

__all__ = ["Sampler"]

cdef enum:
    MAX_LAST_N = 1 << 24                # penalties and dry keep so many tokens in memory from the start

# llama.cpp draws a seed of its own
cdef object _RANDOM = c_llama.LLAMA_DEFAULT_SEED


@cython.no_gc_clear
cdef class Sampler(SamplerBase):
    """One sampler of llama.cpp, made by one of the static methods named after it.

    A sampler works on `Candidates`: it reorders them, drops some, changes their logits, or selects one. Most are used
    in a `SamplerChain`, which takes them over: after `SamplerChain.add` the object is empty until `SamplerChain.remove`
    gives it back.

    Attributes
    ----------
    kind : str
        Name of the static method that made it.
    values : dict
        The arguments it was made with.

    Lifetime: samplers made from a vocabulary keep its model alive, and are closed with it.
    Thread safety: one call at a time; a second one raises `ConcurrentUseError`.
    """

    # in the order of llama.h

    @staticmethod
    def greedy():
        """Select the candidate with the highest logit."""
        return sampler_wrap(c_llama.llama_sampler_init_greedy(), "greedy", {})

    @staticmethod
    def dist(seed=_RANDOM):
        """Select a candidate at random, by the probabilities that the logits stand for.

        Parameters
        ----------
        seed : int
            0 to 2**32 - 1; the largest, like None, stands for a random seed (`seed` tells which).
        """
        cdef uint32_t c_seed = _seed(seed)
        return sampler_wrap(c_llama.llama_sampler_init_dist(c_seed), "dist", {"seed": c_seed})

    @staticmethod
    def top_k(k):
        """Keep the `k` candidates with the highest logits; all of them when `k` is 0 or less."""
        cdef int32_t c_k = _count(k, "k", INT32_MIN)
        return sampler_wrap(c_llama.llama_sampler_init_top_k(c_k), "top_k", {"k": c_k})

    @staticmethod
    def top_p(double p, min_keep=1):
        """Keep the most probable candidates whose probabilities come to at least `p` (nucleus sampling).

        Parameters
        ----------
        p : float
            0 to 1; 1 keeps all.
        min_keep : int
            Candidates to keep at least.
        """
        cdef float c_p = _number(p, "p", 0, 1)
        cdef size_t c_keep = _count(min_keep, "min_keep", 0)
        return sampler_wrap(c_llama.llama_sampler_init_top_p(c_p, c_keep), "top_p", {"p": p, "min_keep": c_keep})

    @staticmethod
    def min_p(double p, min_keep=1):
        """Keep the candidates that are at least `p` times as probable as the most probable one.

        Parameters
        ----------
        p : float
            0 to 1; 0 keeps all.
        min_keep : int
            Candidates to keep at least.
        """
        cdef float c_p = _number(p, "p", 0, 1)
        cdef size_t c_keep = _count(min_keep, "min_keep", 0)
        return sampler_wrap(c_llama.llama_sampler_init_min_p(c_p, c_keep), "min_p", {"p": p, "min_keep": c_keep})

    @staticmethod
    def typical(double p, min_keep=1):
        """Keep the candidates whose information is closest to the expected one, up to the probability `p`.

        Use it before samplers that rule candidates out by a logit of -inf. The method is that of arXiv:2202.00666.

        Parameters
        ----------
        p : float
            0 to 1; 1 keeps all.
        min_keep : int
            Candidates to keep at least.
        """
        cdef float c_p = _number(p, "p", 0, 1)
        cdef size_t c_keep = _count(min_keep, "min_keep", 0)
        return sampler_wrap(c_llama.llama_sampler_init_typical(c_p, c_keep), "typical", {"p": p, "min_keep": c_keep})

    @staticmethod
    def temp(double t):
        """Divide the logits by the temperature `t`; 0 or less rules out all but the highest."""
        return sampler_wrap(c_llama.llama_sampler_init_temp(_temperature(t)), "temp", {"t": t})

    @staticmethod
    def temp_ext(double t, double delta, double exponent=1.0):
        """Divide the logits by a temperature between `t` - `delta` and `t` + `delta` that grows with their entropy.

        Parameters
        ----------
        t, delta : float
            The range; with a `delta` of 0 or less, as `temp`.
        exponent : float
            What the entropy, between 0 and 1, is raised to (arXiv:2309.02772).
        """
        cdef float c_t = _temperature(t)
        cdef float c_delta = _number(delta, "delta", -INFINITY, INFINITY)
        cdef float c_exponent = _number(exponent, "exponent", -INFINITY, INFINITY)
        return sampler_wrap(
            c_llama.llama_sampler_init_temp_ext(c_t, c_delta, c_exponent), "temp_ext",
            {"t": t, "delta": delta, "exponent": exponent})

    @staticmethod
    def xtc(double p, double t, min_keep=1, seed=_RANDOM):
        """With the probability `p`, drop all candidates of at least the probability `t` but the least probable of them.

        Parameters
        ----------
        p : float
            0 to 1; 0 turns it off.
        t : float
            0 to 1; above 0.5 turns it off.
        min_keep : int
            Drop nothing when fewer would be left.
        seed : int
            As for `dist`.
        """
        cdef float c_p = _number(p, "p", 0, 1)
        cdef float c_t = _number(t, "t", 0, 1)
        cdef size_t c_keep = _count(min_keep, "min_keep", 0)
        cdef uint32_t c_seed = _seed(seed)
        return sampler_wrap(
            c_llama.llama_sampler_init_xtc(c_p, c_t, c_keep, c_seed), "xtc",
            {"p": p, "t": t, "min_keep": c_keep, "seed": c_seed})

    @staticmethod
    def top_n_sigma(double n):
        """Rule out candidates more than `n` standard deviations below the highest logit; none when `n` is 0 or less."""
        cdef float c_n = _number(n, "n", -INFINITY, INFINITY)
        return sampler_wrap(c_llama.llama_sampler_init_top_n_sigma(c_n), "top_n_sigma", {"n": n})

    @staticmethod
    def mirostat(n_vocab, seed=_RANDOM, double tau=5.0, double eta=0.1, m=100):
        """Select a candidate so that the text keeps a target surprise (Mirostat, arXiv:2007.14966).

        Parameters
        ----------
        n_vocab : int
            Size of the vocabulary.
        seed : int
            As for `dist`.
        tau : float
            Target surprise, in bits; well below the logarithm of `n_vocab`, or llama.cpp's estimate of how many
            candidates to keep overflows, and it keeps one.
        eta : float
            Learning rate.
        m : int
            Candidates that the spread of probabilities is estimated from, at least 2.
        """
        cdef uint32_t c_seed = _seed(seed)
        cdef float c_tau = _number(tau, "tau", 0, INFINITY)
        cdef float c_eta = _number(eta, "eta", 0, INFINITY)
        cdef int32_t c_n_vocab = _count(n_vocab, "n_vocab", 1)
        cdef int32_t c_m = _count(m, "m", 2)
        return sampler_wrap(
            c_llama.llama_sampler_init_mirostat(c_n_vocab, c_seed, c_tau, c_eta, c_m), "mirostat",
            {"n_vocab": c_n_vocab, "seed": c_seed, "tau": tau, "eta": eta, "m": c_m}, c_n_vocab)

    @staticmethod
    def mirostat_v2(seed=_RANDOM, double tau=5.0, double eta=0.1):
        """Select a candidate so that the text keeps a target surprise, by the simpler rule of Mirostat 2.0.

        Parameters
        ----------
        seed : int
            As for `dist`.
        tau : float
            Target surprise, in bits.
        eta : float
            Learning rate.
        """
        cdef uint32_t c_seed = _seed(seed)
        cdef float c_tau = _number(tau, "tau", 0, INFINITY)
        cdef float c_eta = _number(eta, "eta", 0, INFINITY)
        return sampler_wrap(
            c_llama.llama_sampler_init_mirostat_v2(c_seed, c_tau, c_eta), "mirostat_v2",
            {"seed": c_seed, "tau": tau, "eta": eta})

    @staticmethod
    def grammar(
        Vocab vocab not None, str grammar_str not None, str grammar_root not None="root", *, special=True
    ):
        """Rule out candidates that don't fit a grammar.

        Parameters
        ----------
        vocab : Vocab
            The vocabulary; its model is kept alive.
        grammar_str : str
            Grammar in GBNF.
        grammar_root : str
            Rule to begin with.
        special : bool or iterable of int
            Special tokens, or these, stand for their spelling. The others don't fit, but where a token rule or a
            trigger names them: for text that leaves them out (`Vocab.detokenize`, `TextAssembler`).

        Raises
        ------
        GrammarError
            The grammar is wrong (the message says where), recursive on the left, or too large or deep for llama.cpp.

        Source: ``llama_sampler_init_grammar``.
        """
        return _grammar(vocab, "grammar", grammar_str, grammar_root, None, (), special)

    @staticmethod
    def grammar_lazy(
        Vocab vocab not None, str grammar_str not None, str grammar_root not None="root", *, trigger_patterns=(),
        trigger_tokens=(), reasoning=None, special=True,
    ):
        """Rule out candidates that don't fit a grammar, from a trigger on.

        Parameters
        ----------
        vocab, grammar_str, grammar_root
            As for `grammar`.
        trigger_patterns : sequence of str
            Regular expressions (ECMAScript, without back-references). They are searched in the last 512 to 1,024 bytes
            of the accepted text, and while one looks at its beginning (``^``) in all of it, up to 65,536 bytes; what is
            after that is no beginning. The grammar begins with the first group that matched something, or with the
            match.
        trigger_tokens : sequence of int
            Tokens that trigger the grammar, which begins with them.
        reasoning : ReasoningTags, optional
            No trigger counts within reasoning, and ``^`` is where it has ended.
        special
            As for `grammar`.

        Raises
        ------
        GrammarError
            As for `grammar`; or a pattern is wrong or too large.

        Source: ``llama_sampler_init_grammar_lazy_patterns``.
        """
        if isinstance(trigger_patterns, str):
            raise TypeError("trigger_patterns is a sequence of patterns, not one")
        patterns = tuple(trigger_patterns)
        tokens = tuple([_token(token, vocab.n_tokens) for token in trigger_tokens])
        if not patterns and not tokens:
            raise ValueError("a lazy grammar needs trigger_patterns or trigger_tokens")
        if reasoning is not None and not isinstance(reasoning, ReasoningTags):
            raise TypeError(f"reasoning must be a ReasoningTags, not {reasoning!r:.60}")
        return _grammar(vocab, "grammar_lazy", grammar_str, grammar_root, patterns, tokens, special, reasoning)

    @staticmethod
    def penalties(
        n_vocab, penalty_last_n=64, double penalty_repeat=1.0, double penalty_freq=0.0,
        double penalty_present=0.0
    ):
        """Lower the logits of tokens that were accepted lately.

        Parameters
        ----------
        n_vocab : int
            Size of the vocabulary.
        penalty_last_n : int
            Accepted tokens to look at; 0 turns it off.
        penalty_repeat : float
            Above 0; divides positive logits and multiplies negative ones. 1 turns it off.
        penalty_freq : float
            Taken off for each time that a token occurs.
        penalty_present : float
            Taken off for a token that occurs.
        """
        cdef float c_repeat = _number(penalty_repeat, "penalty_repeat", 0, INFINITY)
        cdef float c_freq = _number(penalty_freq, "penalty_freq", -INFINITY, INFINITY)
        cdef float c_present = _number(penalty_present, "penalty_present", -INFINITY, INFINITY)
        cdef llama_sampler* ptr
        cdef bint lowers
        cdef int32_t c_n_vocab = _count(n_vocab, "n_vocab", 1)
        cdef int32_t c_last_n = _count(penalty_last_n, "penalty_last_n", 0, MAX_LAST_N)
        if c_repeat == 0:
            raise ValueError(f"penalty_repeat must be above 0, not {penalty_repeat}")
        ptr = c_llama.llama_sampler_init_penalties(c_n_vocab, c_last_n, c_repeat, c_freq, c_present)
        lowers = 1 <= c_repeat < INFINITY and c_freq >= 0 and c_present >= 0
        return sampler_wrap(
            watched_sampler_new(ptr, c_last_n, lowers, False), "penalties",
            {"n_vocab": c_n_vocab, "penalty_last_n": c_last_n, "penalty_repeat": penalty_repeat,
             "penalty_freq": penalty_freq, "penalty_present": penalty_present}, c_n_vocab)

    @staticmethod
    def dry(
        Vocab vocab not None, double dry_multiplier, double dry_base=1.75, dry_allowed_length=2,
        dry_penalty_last_n=1024, seq_breakers=("\n", ":", "\"", "*"),
    ):
        """Lower the logits of tokens that would go on with a repetition ("don't repeat yourself").

        Parameters
        ----------
        vocab : Vocab
            The vocabulary; its model is kept alive.
        dry_multiplier : float
            Strength; 0 turns it off.
        dry_base : float
            What the penalty grows by with each token of the repetition, at least 1.
        dry_allowed_length : int
            Length up to which a repetition costs nothing.
        dry_penalty_last_n : int
            Accepted tokens to look at; 0 turns it off.
        seq_breakers : sequence of str
            Texts of 1 to 40 bytes that end a repetition.

        Source: ``llama_sampler_init_dry``.
        """
        cdef float c_multiplier = _number(dry_multiplier, "dry_multiplier", 0, INFINITY)
        cdef llama_sampler* ptr
        cdef float c_base = _number(dry_base, "dry_base", 1, INFINITY)
        cdef int32_t c_allowed = _count(dry_allowed_length, "dry_allowed_length", 0)
        cdef int32_t c_last_n = _count(dry_penalty_last_n, "dry_penalty_last_n", 0, MAX_LAST_N)
        _text_vocab(vocab)
        breakers = dry_breakers(seq_breakers)
        ptr = dry_sampler_new(vocab, c_multiplier, c_base, c_allowed, c_last_n, breakers)
        # without a length that costs nothing, it lowers all that it has seen
        ptr = watched_sampler_new(ptr, c_last_n, True, c_allowed > 0)
        return sampler_wrap(
            ptr, "dry",
            {"dry_multiplier": dry_multiplier, "dry_base": dry_base, "dry_allowed_length": c_allowed,
             "dry_penalty_last_n": c_last_n, "seq_breakers": breakers}, vocab.n_tokens, vocab._model)

    @staticmethod
    def adaptive_p(double target, double decay=0.9, seed=_RANDOM):
        """Select a candidate so that the chosen tokens keep near a target probability.

        Parameters
        ----------
        target : float
            Up to 1; below 0 turns the adaptation off.
        decay : float
            0 to 0.99; how much of the history is kept at each token.
        seed : int
            As for `dist`.
        """
        cdef float c_target = _number(target, "target", -INFINITY, 1)
        cdef float c_decay = _number(decay, "decay", 0, 0.99)
        cdef uint32_t c_seed = _seed(seed)
        return sampler_wrap(
            c_llama.llama_sampler_init_adaptive_p(c_target, c_decay, c_seed), "adaptive_p",
            {"target": target, "decay": decay, "seed": c_seed})

    @staticmethod
    def logit_bias(n_vocab, logit_bias):
        """Add to the logits of some tokens.

        Parameters
        ----------
        n_vocab : int
            Size of the vocabulary.
        logit_bias : mapping of int to float
            By token id: up to 1e8; -inf rules a token out.
        """
        cdef c_llama.llama_logit_bias* c_bias
        cdef llama_sampler* ptr
        cdef int i
        cdef int32_t c_n_vocab = _count(n_vocab, "n_vocab", 1)
        biases = {_token(token, c_n_vocab): float(bias) for token, bias in dict(logit_bias).items()}
        for token, bias in biases.items():
            if not bias <= 1e8:
                raise ValueError(f"the bias of token {token} must be a number up to 1e8, or -inf, not {bias}")
        c_bias = <c_llama.llama_logit_bias*>malloc((len(biases) + 1) * sizeof(c_llama.llama_logit_bias))
        if c_bias == NULL:
            raise MemoryError()
        try:
            for i, (token, bias) in enumerate(biases.items()):
                c_bias[i].token = token
                c_bias[i].bias = bias
            ptr = c_llama.llama_sampler_init_logit_bias(c_n_vocab, len(biases), c_bias)
        finally:
            free(c_bias)
        return sampler_wrap(ptr, "logit_bias", {"n_vocab": c_n_vocab, "logit_bias": biases}, c_n_vocab)

    @staticmethod
    def infill(Vocab vocab not None):
        """Prefer the end of generation, and merge candidates with the same beginning, when filling in the middle.

        Use it after top_k and top_p: it compares every candidate with every other.

        Parameters
        ----------
        vocab : Vocab
            A vocabulary with an EOT or EOS token; its model is kept alive.

        Source: ``llama_sampler_init_infill``.
        """
        cdef const c_llama.llama_vocab* c_vocab = _text_vocab(vocab)
        if c_llama.llama_vocab_eot(c_vocab) < 0 and c_llama.llama_vocab_eos(c_vocab) < 0:
            raise SamplerError("infill needs a vocabulary with an EOT or EOS token")
        return sampler_wrap(c_llama.llama_sampler_init_infill(c_vocab), "infill", {}, vocab.n_tokens, vocab._model)

    # our own

    @staticmethod
    def min_tokens(Vocab vocab not None, n):
        """Rule out all tokens that end a generation until `n` tokens were accepted."""
        cdef int32_t c_n = _count(n, "n", 0)
        return sampler_wrap(
            min_tokens_sampler_new(vocab, c_n), "min_tokens", {"n": c_n}, vocab.n_tokens, vocab._model)

    @staticmethod
    def reasoning_budget(
        Vocab vocab not None, budget, *, start="<think>", end="</think>", message="", bint in_block=False,
        start_within=0,
    ):
        """End a block of reasoning after so many tokens, by forcing a message and the end tag.

        Use it first in a chain. Only the first block counts. The end waits for the last character to be whole;
        `llamacy.core.reasoning_budget` has functions that tell how far it is, and end the block earlier.

        Parameters
        ----------
        vocab : Vocab
            The vocabulary; its model is kept alive.
        budget : int
            Tokens between the tags; 0 ends the block at once.
        start, end : str or sequence of str
            Tags, as they are in the text; the first of `end` is what is forced.
        message : str
            Text that is forced before the end tag.
        in_block : bool
            The prompt has begun the block.
        start_within : int
            The block must begin in so many tokens; 0 for any number.
        """
        values = budget_values(budget, start, end, message, in_block, start_within)
        return sampler_wrap(
            budget_sampler_new(vocab, values), "reasoning_budget", values, vocab.n_tokens, vocab._model)

    def accept_all(self, const int32_t[::1] tokens):
        """Accept tokens one after the other, as `accept` does: those of a prompt, for penalties and dry.

        Raises
        ------
        GrammarError
            The grammar does not allow a token; those before it were accepted.
        SamplerError
            There is no such token; nothing was changed.

        Thread safety: releases the GIL.
        """
        cdef Py_ssize_t i
        cdef int32_t end = self._n_vocab if self._n_vocab else INT32_MAX
        for i in range(tokens.shape[0]):
            if not 0 <= tokens[i] < end:
                raise SamplerError(f"there is no token {tokens[i]}" + (f" among {end}" if self._n_vocab else ""))
        with nogil:
            sampler_acquire(self)
            try:
                for i in range(tokens.shape[0]):
                    sampler_accept(self, tokens[i])
            finally:
                sampler_release(self)


cdef _grammar(Vocab vocab, str kind, str text, str root, patterns, tokens, special, reasoning=None):
    _text_vocab(vocab)
    spelled = None if special is True else tuple([_token(token, vocab.n_tokens) for token in special or ()])
    values = {"grammar_str": text, "grammar_root": root, "special": special if isinstance(special, bool) else spelled}
    try:
        c_text = text.encode()
        c_root = root.encode()
        c_patterns = None if patterns is None else [pattern.encode() for pattern in patterns]
    except UnicodeEncodeError as error:
        raise GrammarError(f"a grammar or pattern contains half of a surrogate pair: {error}") from None
    if patterns is not None:
        for pattern in c_patterns:
            if not pattern or b"\0" in pattern:
                raise GrammarError("a trigger pattern must not be empty or contain a NUL character")
        values["trigger_patterns"] = patterns
        values["trigger_tokens"] = tokens
        values["reasoning"] = reasoning
    model_use(vocab._model)
    try:
        return sampler_wrap(
            grammar_sampler_new(vocab, c_text, c_root, c_patterns, tokens, reasoning, spelled), kind, values,
            vocab.n_tokens, vocab._model)
    finally:
        model_unuse(vocab._model)


cdef const c_llama.llama_vocab* _text_vocab(Vocab vocab) except NULL:
    cdef const c_llama.llama_vocab* c_vocab = vocab_handle(vocab)
    if c_llama.llama_vocab_type(c_vocab) == c_llama.LLAMA_VOCAB_TYPE_NONE:
        raise SamplerError("this model has no tokenizer, so its tokens have no text")
    return c_vocab


cdef uint32_t _seed(object seed) except? 0xffffffff:
    if seed is None:
        return c_llama.LLAMA_DEFAULT_SEED
    number = PyNumber_Index(seed)
    if not 0 <= number < 1 << 32:
        raise ValueError(f"seed must be from 0 to 2**32 - 1, not {seed}")
    return number


cdef object _token(object token, int n_vocab):
    number = PyNumber_Index(token)
    if not 0 <= number < n_vocab:
        raise ValueError(f"there is no token {token} among {n_vocab}")
    return number


cdef float _number(double value, str name, double least, double most) except? -1.0:
    if not (least <= value <= most and isfinite(<float>value)):
        limits = f" from {least:g} to {most:g}" if isfinite(most) else f" of at least {least:g}" if isfinite(
            least
        ) else ""
        raise ValueError(f"{name} must be a finite number{limits}, not {value}")
    return <float>value


cdef float _temperature(double t) except? -1.0:
    if 0 < t < 1e-30:
        raise ValueError(f"a temperature of {t} would make logits infinite; use 0 for the most probable token")
    return _number(t, "t", -INFINITY, INFINITY)


cdef int32_t _count(object value, str name, int32_t least, int32_t most=INT32_MAX) except? -1:
    number = PyNumber_Index(value)
    if not least <= number <= most:
        raise ValueError(f"{name} must be from {least} to {most}, not {value}")
    return number


cdef Sampler sampler_wrap(
    llama_sampler* ptr, str kind, dict values, int n_vocab=0, Model model=None, object owned=None, bint clonable=True
):
    """Return an object that owns a native sampler."""
    cdef Sampler self = Sampler.__new__(Sampler)
    self._ptr = ptr
    handle_opened(SAMPLER)
    self.kind = kind
    self._values = values
    self._n_vocab = n_vocab
    self._owned = owned
    self._clonable = clonable
    sampler_set_model(self, model)
    return self
