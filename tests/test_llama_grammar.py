"""`Llama` under a grammar: JSON that validates, ends, triggers, several runs of one grammar."""

from __future__ import annotations

import json
import re
import threading
from decimal import Decimal
from typing import Any

import jsonschema
import numpy as np
import pytest

from llamacy.core.batch import Batch
from llamacy.core.context import Context
from llamacy.core.sampler import Sampler, SamplerChain
from llamacy.core.scheduler import Scheduler
from llamacy.core.sequence import Sequence
from llamacy.errors import ContextLengthError, GrammarError
from llamacy.grammar import Grammar
from llamacy.llama import Llama
from tests.helpers import DATA, data, toy_tokens

PROMPT = "A JSON object that describes a person:\n"
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "kind": {"enum": ["child", "adult"]},
    },
    "required": ["name", "age", "kind"],
    "additionalProperties": False,
}
CODE = "[0-9]{3}-[a-f]{2}"
OUTPUTS = json.loads((DATA / "structured-output.json").read_text(encoding="utf-8"))


@pytest.fixture
def smollm2(closing, smollm2_model):
    return closing(Llama(smollm2_model, n_ctx=512, n_threads=1, n_threads_batch=1))


@pytest.fixture
def tiny(closing):
    return closing(Llama(data("target.gguf"), n_ctx=128, n_threads=1, n_threads_batch=1))


def choice(completion):
    return completion["choices"][0]["text"], completion["choices"][0]["finish_reason"]


@pytest.mark.parametrize("grammar_first", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_json_of_a_schema_validates_and_ends(smollm2, seed, grammar_first):
    grammar = Grammar.from_json_schema(PERSON)
    text, reason = choice(
        smollm2(PROMPT, max_tokens=120, temperature=1.5, seed=seed, grammar=grammar, grammar_first=grammar_first)
    )
    assert reason == "stop"
    jsonschema.validate(json.loads(text), PERSON)


@pytest.mark.parametrize(
    "sampling", [{}, {"top_k": 0, "top_p": 1.0, "min_p": 0.0}], ids=["default", "whole vocabulary"]
)
@pytest.mark.parametrize("case", OUTPUTS, ids=[case["name"] for case in OUTPUTS])
def test_schemas_that_people_use_hold_for_each_text(closing, smollm2_model, case, sampling):
    # no text of these grammars has more bytes than the context has tokens, so each must end
    llama = closing(Llama(smollm2_model, n_ctx=1024, n_threads=1, n_threads_batch=1))
    grammar = Grammar.from_json_schema(case["schema"], **case["policy"])
    exact = json.loads(json.dumps(case["schema"]), parse_float=Decimal)
    validator = jsonschema.Draft202012Validator(exact, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER)
    for seed in (1000, 1001):
        text, reason = choice(
            llama(case["prompt"], max_tokens=None, temperature=1.5, seed=seed, grammar=grammar, **sampling)
        )
        assert reason == "stop", text
        value = json.loads(text, parse_float=Decimal, parse_constant=pytest.fail)
        assert list(validator.iter_errors(value)) == [], text


def test_stream_gives_the_text_of_the_whole(smollm2):
    grammar = Grammar.from_json_schema(PERSON)
    options: dict[str, Any] = {"max_tokens": 120, "temperature": 1.5, "seed": 3, "grammar": grammar}
    whole = smollm2(PROMPT, **options)
    chunks = list(smollm2(PROMPT, stream=True, **options))
    assert "".join(choice(chunk)[0] for chunk in chunks) == choice(whole)[0]
    assert choice(chunks[-1])[1] == choice(whole)[1] == "stop"
    assert chunks[-1]["usage"]["completion_tokens"] == whole["usage"]["completion_tokens"]


@pytest.mark.parametrize("max_tokens", [1, 2, 4])
def test_text_that_is_cut_is_the_beginning_of_one(smollm2, max_tokens):
    grammar = Grammar.from_regex(CODE)
    text, reason = choice(smollm2(PROMPT, max_tokens=max_tokens, seed=1, grammar=grammar))
    assert reason == "length"
    assert re.fullmatch("[0-9]{0,3}|[0-9]{3}-[a-f]{0,2}", text)


def test_nothing_can_follow_so_the_run_ends_without_another_token(smollm2):
    grammar = Grammar.from_regex(CODE)
    tokens = list(smollm2.generate(smollm2.tokenize(PROMPT), seed=5, grammar=grammar))
    assert re.fullmatch(CODE, smollm2.detokenize(tokens).decode())
    assert not smollm2.model.vocab.is_eog(tokens[-1])
    # also where the last token that is wanted is the last one that may come
    completion = smollm2(PROMPT, max_tokens=len(tokens), seed=5, grammar=grammar)
    assert choice(completion) == (smollm2.detokenize(tokens).decode(), "stop")


def test_text_that_may_end_or_go_on_ends_with_a_token_that_says_so(smollm2):
    grammar = Grammar.from_string('root ::= "yes" " and no"{0,3}')
    tokens = list(smollm2.generate(smollm2.tokenize("yes or no? "), temperature=0, max_tokens=60, grammar=grammar))
    text = smollm2.detokenize([token for token in tokens if not smollm2.model.vocab.is_eog(token)]).decode()
    assert re.fullmatch("yes( and no){0,3}", text)
    assert all(not smollm2.model.vocab.is_eog(token) for token in tokens[:-1])


def test_special_tokens_never_stand_for_their_spelling(smollm2):
    vocab = smollm2.model.vocab
    spelling = "<|im_start|>"
    assert vocab.tokenize(spelling, parse_special=True)[-1] != vocab.tokenize(spelling)[-1]
    for temperature in (0, 1.5):
        text, reason = choice(
            smollm2(PROMPT, max_tokens=30, temperature=temperature, grammar=Grammar.from_choices([spelling]))
        )
        assert (text, reason) == (spelling, "stop")


@pytest.mark.parametrize(
    "triggers", [{"trigger_words": ["{"]}, {"trigger_patterns": [r"[a-z ]*\n*(\{)"]}], ids=["word", "pattern"]
)
def test_lazy_grammar_holds_from_its_trigger_on(smollm2, triggers):
    grammar = Grammar.from_json_schema(PERSON).with_triggers(**triggers)
    n_triggered = 0
    for seed in range(8):
        text, reason = choice(smollm2(PROMPT, max_tokens=100, temperature=1.0, seed=seed, grammar=grammar))
        _, brace, rest = text.partition("{")
        if brace:
            n_triggered += 1
            value, end = json.JSONDecoder().raw_decode(brace + rest) if reason == "stop" else ({}, 0)
            if reason == "stop":
                assert end == len(brace + rest)
                jsonschema.validate(value, PERSON)
    assert n_triggered >= 2


@pytest.mark.parametrize("trigger", ["word", "pattern", "token"])
def test_free_text_and_the_grammar_after_it_come_in_one_stream(smollm2, trigger):
    (nine,) = smollm2.tokenize("9", add_bos=False)
    triggers: dict[str, Any] = {
        "word": {"trigger_words": ["9"]},
        "pattern": {"trigger_patterns": ["[78], (9)"]},
        "token": {"trigger_tokens": [nine]},
    }[trigger]
    grammar = Grammar.from_string('root ::= "9 has the code " [0-9]{3} "-" [a-f]{2} "."').with_triggers(**triggers)
    options: dict[str, Any] = {"max_tokens": 60, "temperature": 0}
    # what the model counts by itself, it counts while it may trigger as well
    assert choice(smollm2("1, 2, 3, 4, 5,", **options))[0].startswith(" 6, 7, 8, 9, 10, 11")
    chunks = [choice(chunk) for chunk in smollm2("1, 2, 3, 4, 5,", stream=True, grammar=grammar, **options)]
    assert re.fullmatch(r" 6, 7, 8, 9 has the code [0-9]{3}-[a-f]{2}\.", "".join(text for text, _ in chunks))
    assert chunks[-1][1] == "stop"
    assert len([text for text, _ in chunks if text]) > 10


def test_lazy_grammar_begins_with_a_trigger_token(smollm2):
    vocab = smollm2.model.vocab
    (token,) = vocab.tokenize("{", add_special=False)
    grammar = Grammar.from_string('root ::= "{" "}" "!"').with_triggers(trigger_tokens=[token])
    tokens = list(
        smollm2.generate(vocab.tokenize(PROMPT + "{}\n"), temperature=1.0, seed=2, max_tokens=60, grammar=grammar)
    )
    if token in tokens:
        at = tokens.index(token)
        assert smollm2.detokenize(tokens[at:]).decode() == "{}!"


def test_one_grammar_serves_runs_side_by_side(closing, smollm2_model, smollm2):
    grammar = Grammar.from_json_schema(PERSON)
    other = closing(Llama(smollm2_model, n_ctx=512, n_threads=1, n_threads_batch=1))
    prompt = smollm2.tokenize(PROMPT)

    def run(llama, seed):
        return llama.generate(prompt, temperature=1.5, seed=seed, max_tokens=120, grammar=grammar)

    alone = [list(run(smollm2, seed)) for seed in (1, 2)]
    one, two = run(smollm2, 1), run(other, 2)
    mixed: list[list[int]] = [[], []]
    while any(len(tokens) < len(whole) for tokens, whole in zip(mixed, alone, strict=True)):
        for tokens, iterator in zip(mixed, (one, two), strict=True):
            tokens.extend([token] if (token := next(iterator, None)) is not None else [])
    assert mixed == alone
    one.close()
    two.close()
    found: list[list[int] | None] = [None, None]

    def work(index, llama):
        found[index] = list(run(llama, index + 1))

    threads = [threading.Thread(target=work, args=item) for item in enumerate((smollm2, other))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == alone


def test_two_sequences_of_one_context_obey_one_grammar(closing, smollm2_model):
    vocab = smollm2_model.vocab
    context = closing(Context(smollm2_model, n_ctx=256, n_seq_max=2, n_threads=1, n_threads_batch=1))
    scheduler = closing(Scheduler(context))
    grammar = Grammar.from_regex(CODE)
    sequences = []
    for seq_id, prompt in enumerate(("code: ", "1, 2, 3,")):
        sequence = Sequence(seq_id, 64)
        sequence.extend(np.asarray(vocab.tokenize(prompt), np.int32))
        sequence.sampler = closing(SamplerChain([Sampler.top_k(40), Sampler.dist(seq_id)]))
        sequence.grammar = closing(Sampler.grammar(vocab, grammar.text, grammar.root))
        sequence.grammar_first = seq_id == 1
        scheduler.add(sequence)
        sequences.append(sequence)
    while not all(sequence.complete for sequence in sequences):
        scheduler.step()
        for sequence in sequences:
            if sequence.complete:
                scheduler.remove(sequence)
    for sequence, prompt in zip(sequences, ("code: ", "1, 2, 3,"), strict=True):
        n = len(vocab.tokenize(prompt))
        assert re.fullmatch(CODE, vocab.detokenize(sequence.tokens[n:]).decode().strip())


def test_clone_in_the_middle_of_a_string_goes_on_like_the_original(closing, smollm2_model):
    vocab = smollm2_model.vocab
    context = closing(Context(smollm2_model, n_ctx=256, n_threads=1, n_threads_batch=1))
    batch = closing(Batch(256))
    made = Grammar.from_json_schema(PERSON)
    grammar = closing(Sampler.grammar(vocab, made.text, made.root))
    chain = closing(SamplerChain([Sampler.top_k(40), Sampler.temp(1.5), Sampler.dist(4)]))
    prompt = vocab.tokenize(PROMPT)

    def go_on(chain, grammar, tokens, position, until="(?!)"):
        """Generate until the grammar is complete, or the text matches."""
        tokens = list(tokens)
        while not grammar.complete and not re.fullmatch(until, vocab.detokenize(tokens).decode(errors="replace")):
            batch.clear()
            pending = prompt if not tokens else tokens[-1:]
            batch.extend(pending, position)
            context.decode(batch)
            position += len(pending)
            tokens.append(chain.sample(context, grammar=grammar))
        return tokens, position

    begun, position = go_on(chain, grammar, [], 0, r'\{"name": ?"[^"\\]{3,}')
    beginning = vocab.detokenize(begun)
    assert beginning.count(b'"') == 3  # a string is open
    forked = closing(chain.clone()), closing(grammar.clone())
    seeded = closing(SamplerChain([Sampler.temp(1.5), Sampler.dist(5)])), closing(grammar.clone())
    whole, _ = go_on(chain, grammar, begun, position)
    chain.close()
    grammar.close()
    texts = []
    for one, other in (forked, seeded):
        context.memory.seq_rm(0, position, -1)
        tokens, _ = go_on(one, other, begun, position)
        texts.append(vocab.detokenize(tokens))
    assert texts[0] == vocab.detokenize(whole)
    assert texts[1] != texts[0]
    for text in texts:
        assert text.startswith(beginning)
        jsonschema.validate(json.loads(text), PERSON)


def test_suppressed_tokens_hold_under_a_grammar_and_a_dead_end_is_an_error(closing, target_model):
    vocab = target_model.vocab
    n = vocab.n_tokens
    yes, no = 4 + ord("y"), 4 + ord("n")
    letters = [token for token in range(n) if vocab.piece(token) in (b"y", b"n")]
    for kept, ends in ((yes, "y"), (no, "n"), (None, None)):
        context = closing(Context(target_model, n_ctx=64, n_threads=1, n_threads_batch=1))
        scheduler = closing(Scheduler(context))
        sequence = Sequence(0, 64)
        sequence.extend(np.asarray(toy_tokens("well"), np.int32))
        bias = {token: -np.inf for token in letters if token != kept}
        sequence.sampler = closing(SamplerChain([Sampler.logit_bias(n, bias), Sampler.top_k(40), Sampler.dist(1)]))
        sequence.grammar = closing(Sampler.grammar(vocab, 'root ::= "y" | "n"'))
        scheduler.add(sequence)
        if ends is None:
            with pytest.raises(GrammarError, match="no token is left"):
                scheduler.next_token(sequence)
        else:
            assert scheduler.next_token(sequence) == kept
            assert sequence.complete


@pytest.mark.parametrize("stream", [False, True])
def test_grammar_that_the_model_cannot_write_is_an_error(tiny, stream):
    # a token rule that wants an end of the generation, which ends it instead
    end = tiny.model.vocab.eos
    grammar = Grammar.from_string(f'root ::= "a" <[{end}]> "b"')
    with pytest.raises(GrammarError, match="no token is left"):
        list(tiny("hello", max_tokens=8, grammar=grammar, stream=stream))
    assert choice(tiny("hello", max_tokens=2))[1] in ("length", "stop")


def test_grammar_is_checked_before_anything_else_happens(tiny):
    stream = tiny("hello", max_tokens=4, temperature=0, stream=True)
    next(stream)
    for grammar, error in (
        ('root ::= "a"', TypeError),
        (3, TypeError),
        (Grammar.from_string("root ::= <nope>"), GrammarError),
    ):
        with pytest.raises(error):
            tiny("hello", grammar=grammar)
        with pytest.raises(error):
            tiny.generate([1, 2], grammar=grammar)
    with pytest.raises(ValueError, match="there is no grammar"):
        tiny("hello", grammar_first=True)
    with pytest.raises(ContextLengthError):
        tiny.generate([1] * 500, grammar=Grammar.json())
    assert list(stream)[-1]["choices"][0]["finish_reason"] == "length"


def test_request_after_a_grammar_is_free_again(tiny):
    before = choice(tiny("hello", max_tokens=12, temperature=0))
    assert choice(tiny("hello", max_tokens=12, temperature=0, grammar=Grammar.from_choices(["zzz"]))) == ("zzz", "stop")
    assert choice(tiny("hello", max_tokens=12, temperature=0)) == before
    assert choice(tiny("hello", max_tokens=0, grammar=Grammar.json())) == ("", "length")


def test_trigger_word_that_no_text_begins_with_is_refused_before_any_token(tiny):
    grammar = Grammar.from_json_schema({"type": "integer"})
    with pytest.raises(GrammarError, match="Paris"):
        tiny("the", max_tokens=4, grammar=grammar.with_triggers(trigger_words=[" Paris"]))
    assert tiny("the", max_tokens=4, grammar=grammar.with_triggers(trigger_words=["12"]))
