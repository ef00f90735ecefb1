"""Log-probabilities of completions, against a float64 log_softmax of rows that a plain loop computes."""

from __future__ import annotations

import json

import numpy as np
import pytest

from llamacy.core.batch import Batch
from llamacy.core.context import Context
from llamacy.llama import Llama
from tests.helpers import FIRST_BYTE, data, scripted, toy_tokens

F32 = {"type_k": "f32", "type_v": "f32", "flash_attn_type": "disabled", "n_threads": 1, "n_threads_batch": 1}


@pytest.fixture
def llama(closing):
    return closing(Llama(data("llama.gguf"), n_ctx=256, **F32))


@pytest.fixture
def smollm2(closing, smollm2_model):
    return closing(Llama(smollm2_model, n_ctx=512, n_threads=1, n_threads_batch=1))


def rows_of(model, tokens, **params):
    """Return the log-probabilities after each of the tokens, in float64."""
    params = {"n_ctx": 512, "n_threads": 1, "n_threads_batch": 1} | params
    with Context(model, **params) as context, Batch(512) as batch:
        batch.extend(tokens, 0, logits="all")
        context.decode(batch)
        rows = np.array([np.asarray(context.logits(i)) for i in range(len(tokens))], np.float64)
    rows -= rows.max(axis=1, keepdims=True)
    return rows - np.log(np.exp(rows).sum(axis=1, keepdims=True))


def check_entries(vocab, entries, tokens, rows, n_top):
    """Compare entries with the rows that the tokens came from."""
    assert len(entries["tokens"]) == len(entries["token_logprobs"]) == len(entries["top_logprobs"]) == len(tokens)
    for token, name, logprob, tops, row in zip(
        tokens, entries["tokens"], entries["token_logprobs"], entries["top_logprobs"], rows[: len(tokens)], strict=True
    ):
        piece = vocab.piece(token)
        if b"\xef\xbf\xbd" not in piece.decode("utf-8", "replace").encode():
            assert name == piece.decode()
        assert logprob == pytest.approx(row[token], abs=1e-5)
        expected = sorted(row, reverse=True)[:n_top]
        values = sorted(tops.values(), reverse=True)
        assert values[:n_top] == pytest.approx(expected, abs=1e-5)
        assert len(values) == n_top + (row[token] < expected[-1] if n_top else 1)
        if name in tops:
            assert tops[name] >= logprob - 1e-6


@pytest.mark.parametrize("n_top", [0, 1, 5, 288])
@pytest.mark.parametrize("temperature", [0, 1.5])
def test_logprobs_are_log_softmax_of_the_row(llama, n_top, temperature):
    prompt = toy_tokens("the cat")
    generated = []

    def note(input_ids, scores):
        generated[:] = input_ids[len(prompt) :].tolist()

    result = llama(
        prompt, max_tokens=20, temperature=temperature, seed=4, top_k=0, top_p=1, min_p=0, logprobs=n_top,
        stopping_criteria=note,
    )  # fmt: skip
    rows = rows_of(llama.model, prompt + generated, **F32)
    n = result["usage"]["completion_tokens"]
    assert n > 5
    entries = result["choices"][0]["logprobs"]
    n_seen = len(generated)  # a criterion isn't asked after the last token of all
    entries = {name: items[:n_seen] for name, items in entries.items()}
    check_entries(llama.model.vocab, entries, generated, rows[len(prompt) - 1 :], n_top)


def test_logprobs_of_a_real_model(smollm2):
    prompt = smollm2.tokenize("The capital of France is")
    tokens = list(smollm2.generate(prompt, max_tokens=16, temperature=0))
    result = smollm2(prompt, max_tokens=16, temperature=0, logprobs=5, cache_prompt=False)
    entries = result["choices"][0]["logprobs"]
    # one token at a time, as the model was used
    with (
        Context(smollm2.model, n_ctx=512, n_threads=1, n_threads_batch=1) as context,
        Batch(64) as batch,
    ):
        batch.extend(prompt, 0)
        rows = []
        for at, token in enumerate(tokens):
            context.decode(batch)
            row = np.array(context.logits(-1), np.float64)
            rows.append(row - row.max() - np.log(np.exp(row - row.max()).sum()))
            batch.clear()
            batch.add(token, len(prompt) + at, logits=True)
    check_entries(smollm2.model.vocab, entries, tokens, rows, 5)
    assert "".join(entries["tokens"]) == result["choices"][0]["text"]
    assert json.loads(json.dumps(result)) == result


@pytest.mark.parametrize("n_prompt", [1, 2, 64, 65, 66, 129, 200])
@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("n_seq_max", [1, 2])
def test_prompt_is_scored_whatever_its_length(closing, n_prompt, n, n_seq_max):
    # more than one step puts out (64), and more than a batch (100)
    llama = closing(Llama(data("llama.gguf"), n_ctx=256, n_batch=100, n_seq_max=n_seq_max, **F32))
    prompt = [1] + [261 + (index * 7) % 26 for index in range(n_prompt - 1)]
    rows = rows_of(llama.model, prompt, **F32)
    llama(prompt, max_tokens=2)  # what is in the memory already must be computed again
    result = llama(prompt, max_tokens=0, echo=True, logprobs=3, n=n)
    for choice in result["choices"]:
        entries = choice["logprobs"]
        assert entries["token_logprobs"][0] is None
        assert entries["top_logprobs"][0] is None
        rest = {name: items[1:] for name, items in entries.items()}
        check_entries(llama.model.vocab, rest, prompt[1:], rows, 3)
    assert result["usage"]["completion_tokens"] == 0


@pytest.mark.parametrize("name", ["gemma3", "mamba", "rwkv7", "qwen35"])
def test_prompt_is_scored_on_every_kind_of_memory(closing, name):
    llama = closing(Llama(data(f"{name}.gguf"), n_ctx=256, n_seq_max=2, **F32))
    prompt = [1] + [261 + (index * 7) % 26 for index in range(99)]
    rows = rows_of(llama.model, prompt, **F32)
    entries = llama(prompt, max_tokens=3, temperature=0, echo=True, logprobs=2, n=2)["choices"][1]["logprobs"]
    assert len(entries["tokens"]) == 103
    for at, token in enumerate(prompt[1:]):
        assert entries["token_logprobs"][at + 1] == pytest.approx(rows[at][token], abs=1e-4)


def test_scores_do_not_depend_on_their_order_or_on_what_is_in_the_memory(smollm2):
    # reported as LP-007
    start = "lamp: on()\ndoor: open()\nmusic: "
    candidates = ["play()", "stop()", "pause()"]

    def score(candidate):
        result = smollm2(start + candidate, max_tokens=0, echo=True, logprobs=1)
        return sum(result["choices"][0]["logprobs"]["token_logprobs"][1:])

    first = {candidate: score(candidate) for candidate in candidates}
    smollm2(start, max_tokens=8)
    again = {candidate: score(candidate) for candidate in reversed(candidates)}
    together = smollm2([start + candidate for candidate in candidates], max_tokens=0, echo=True, logprobs=1)
    for candidate, choice in zip(candidates, together["choices"], strict=True):
        assert again[candidate] == pytest.approx(first[candidate], abs=1e-5)
        assert sum(choice["logprobs"]["token_logprobs"][1:]) == pytest.approx(first[candidate], abs=1e-5)
    assert len(set(first.values())) == 3


@pytest.mark.parametrize("echo", [False, True])
@pytest.mark.parametrize("stop", [None, [" 10"], ["0, 1"], [", 9, 1", "nothing"], ["zzz"]])
def test_stream_has_the_entries_of_the_whole_aligned_with_its_text(smollm2, stop, echo):
    options = {"max_tokens": 16, "temperature": 0, "logprobs": 2, "stop": stop, "echo": echo}
    whole = smollm2("1, 2, 3, 4, 5, 6, 7,", **options)["choices"][0]
    chunks = [chunk["choices"][0] for chunk in smollm2("1, 2, 3, 4, 5, 6, 7,", **options, stream=True)]
    assert "".join(chunk["text"] for chunk in chunks) == whole["text"]
    entries = [chunk["logprobs"] for chunk in chunks if chunk["logprobs"] is not None]
    for name, items in whole["logprobs"].items():
        joined = [item for part in entries for item in part[name]]
        if name in ("tokens", "text_offset"):
            assert joined == items
        else:  # the first request computed the prompt in one piece, the second one kept it
            assert len(joined) == len(items)
    offsets = whole["logprobs"]["text_offset"]
    for token, start, end in zip(whole["logprobs"]["tokens"], offsets, [*offsets[1:], None], strict=True):
        if end is not None:
            assert whole["text"][start:end] == token
    if stop != ["zzz"] and stop is not None:
        # of the tokens that a stop string cut off none is told, but all that have text before it are
        assert len(whole["text"]) - offsets[-1] > 0
        assert whole["finish_reason"] == "stop"


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_one_entry_for_each_token_however_the_stop_string_falls(llama, size):
    whole = llama("the cat", max_tokens=40, temperature=0, logprobs=1)["choices"][0]
    text = whole["text"]
    for start in range(0, len(text) - size, 3):
        stop = text[start : start + size]
        cut = text[: text.find(stop)]
        if "\ufffd" in stop:
            continue
        result = llama("the cat", max_tokens=40, temperature=0, logprobs=1, stop=stop)["choices"][0]
        assert result["text"] == cut
        # the toy vocabulary has one token a character (or byte)
        assert result["logprobs"]["tokens"] == whole["logprobs"]["tokens"][: len(result["logprobs"]["tokens"])]
        decoded = "".join(result["logprobs"]["tokens"])
        if "bytes:" not in decoded:
            assert decoded == cut


def test_text_of_a_prompt_is_where_its_tokens_are_said_to_be(llama, smollm2):
    cases = [
        (llama, "cat dog", "the space that the tokenizer puts before a text"),
        (llama, "né", "characters of several tokens"),
        (smollm2, "<|im_start|>user\nHi<|im_end|>", "special tokens that are spelled in it"),
        (smollm2, "日本 😀!", "characters of several tokens"),
        (smollm2, smollm2.tokenize("a <|im_start|> b", special=True), "tokens"),
    ]
    for model, prompt, _ in cases:
        choice = model(prompt, max_tokens=4, temperature=0, echo=True, logprobs=0)["choices"][0]
        entries, text = choice["logprobs"], choice["text"]
        given = model.detokenize(prompt, special=True).decode() if isinstance(prompt, list) else prompt
        n_prompt = len(given)
        assert text.startswith(given)
        for name, offset in zip(entries["tokens"], entries["text_offset"], strict=True):
            # special tokens that were put around the prompt, or generated, leave no text
            if name.startswith("bytes:") or name == "<s>" or offset == 0 or offset >= n_prompt or "\ufffd" in text:
                continue
            assert text[offset:].startswith(name), (name, offset)
        assert entries["text_offset"] == sorted(entries["text_offset"])
        assert n_prompt in entries["text_offset"], "the first generated token begins where the prompt ends"


BROKEN = [
    b"\xf0\x9f", b"\xf0\x9fa", b"a\xc3\xc3b", b"\xf0\x9f\x98\x80b", b"\xef\xbf\xbda", b"\xef\xbfa\xe2\x82",
    b"\x80\x80a\xff\xc3\xa9", b"\xe2\x82\xf0\x9f\x98b",
]  # fmt: skip


@pytest.mark.parametrize("prompt", [None, b"a", b"a\xf0\x9f", b"\xe2\x82\xacb\xc3"])
@pytest.mark.parametrize("written", BROKEN, ids=repr)
def test_offsets_count_the_characters_that_broken_bytes_become(llama, prompt, written):
    tokens = [FIRST_BYTE + byte for byte in written]
    result = llama(
        prompt or b"a", max_tokens=len(tokens), temperature=0, logprobs=1, echo=prompt is not None,
        logits_processor=scripted.writing_tokens(tokens),
    )  # fmt: skip
    choice = result["choices"][0]
    before = b"" if prompt is None else prompt
    # the prompt is a text of its own
    first = len(before.decode("utf-8", "replace"))
    assert choice["text"] == before.decode("utf-8", "replace") + written.decode("utf-8", "replace")
    expected = [first + len(written[: n + 1].decode("utf-8", "replace")) - 1 for n in range(len(written))]
    assert choice["logprobs"]["text_offset"][-len(tokens) :] == expected


def test_tokens_with_the_same_text_are_told_apart(llama):
    # the toy vocabulary has "e" as a letter and as a byte
    tops = llama("cat", max_tokens=1, temperature=0, logprobs=288)["choices"][0]["logprobs"]["top_logprobs"][0]
    assert {"e", "bytes:\\x65"} <= set(tops)
    assert len(tops) == 288
    assert np.exp(list(tops.values())).sum() == pytest.approx(1, abs=1e-4)


def test_logits_processor_does_not_change_logprobs(llama):
    def forbid(input_ids, scores):
        scores[:] = -np.inf
        scores[270] = 0

    prompt = toy_tokens("the cat")
    result = llama(prompt, max_tokens=3, temperature=0, logprobs=2, logits_processor=forbid)
    rows = rows_of(llama.model, prompt + [270] * 3, **F32)
    check_entries(llama.model.vocab, result["choices"][0]["logprobs"], [270] * 3, rows[len(prompt) - 1 :], 2)


def test_logprobs_do_not_change_the_text(llama):
    options = {"max_tokens": 20, "temperature": 1.2, "seed": 3}
    assert (
        llama("the cat", **options)["choices"][0]["text"]
        == llama("the cat", logprobs=5, **options)["choices"][0]["text"]
        == llama("the cat", logprobs=5, echo=True, **options)["choices"][0]["text"].removeprefix("the cat")
    )


@pytest.mark.parametrize(
    ("logprobs", "error"),
    [(-1, ValueError), (289, ValueError), (1025, ValueError), (1.5, TypeError), (True, TypeError)],
)
def test_wrong_number_of_logprobs_raises_before_anything_is_computed(llama, logprobs, error):
    epoch = llama.context.epoch
    with pytest.raises(error):
        llama("a", max_tokens=1, logprobs=logprobs)
    assert llama.context.epoch == epoch


def test_token_that_ends_the_generation_is_told(llama):
    eos = llama.model.vocab.eos
    choice = llama("cat", max_tokens=5, logit_bias={eos: 1000.0}, logprobs=0)["choices"][0]
    assert (choice["text"], choice["finish_reason"]) == ("", "stop")
    assert choice["logprobs"]["tokens"] == ["</s>"]


@pytest.mark.parametrize("options", [{"max_tokens": 0}, {"stop": "\ufffd"}, {"max_tokens": 3, "timeout_s": 0}], ids=str)
def test_no_token_gives_empty_lists(llama, options):
    entries = llama("cat", temperature=0, logprobs=2, **options)["choices"][0]["logprobs"]
    if "stop" not in options:
        assert entries == {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
    assert isinstance(entries, dict)
