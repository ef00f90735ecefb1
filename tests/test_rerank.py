"""Reranking: scores against decoding each pair by itself, token layouts written out by hand, and what is refused."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from llamacy import Embedding
from llamacy.core.batch import Batch
from llamacy.core.context import Context
from llamacy.core.model import Model
from llamacy.errors import AdapterError, ContextLengthError, DecodeError, PoolingError, TokenizeError
from llamacy.types import PoolingType
from tests.helpers import BOS, MASK, data, models, toy_tokens
from tests.helpers.compute import EXACT
from tests.helpers.reference import Reference
from tests.helpers.rewrite import boolean, number, rewrite, string, strings

ONE = {name: EXACT[name] for name in EXACT if name != "n_ctx"}
LETTERS = "abcdefghijklmnopqrstuvwxyz"
# the vocabulary of models.write_bert
CLS, SEP = 2, 3
TEMPLATE = "<s>judge {query} by {document} now<mask>"


def bert_tokens(text):
    """Tokenize by the vocabulary of `models.write_bert`: letters that begin a word, and those that go on with one."""
    return [
        (5 if index == 0 else 31) + LETTERS.index(letter) for word in text.split() for index, letter in enumerate(word)
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("rerankers")


@pytest.fixture(scope="module")
def bert(folder):
    return models.write_bert(folder / "bert.gguf", pooling=models.gguf.PoolingType.RANK, n_labels=1)


@pytest.fixture(scope="module")
def three(folder):
    return models.write_bert(folder / "three.gguf", pooling=models.gguf.PoolingType.RANK, n_labels=3)


@pytest.fixture(scope="module")
def qwen(folder):
    """A qwen3 with the head and template that llama.cpp's converter gives a Qwen3-Reranker."""
    head = np.random.default_rng(61).standard_normal((2, 64)).astype(np.float32) / 4
    return rewrite(
        folder / "qwen.gguf",
        data("target.gguf"),
        {
            "qwen3.pooling_type": number(4),
            "qwen3.classifier.output_labels": strings("yes", "no"),
            "tokenizer.chat_template.rerank": string(TEMPLATE),
            "tokenizer.chat_templates": strings("rerank"),
        },
        more={"cls.output.weight": head},
    )


@pytest.fixture
def make(closing):
    return lambda path, **params: closing(Embedding(path, **ONE | params))


def texts(rng, n, n_most=20):
    return ["".join(rng.choice(list("abc defgh"), rng.integers(0, n_most))).strip() for _ in range(n)]


def rows_by_hand(path, sequences):
    """Return what the head puts out for token sequences, each decoded in a context of its own."""
    rows = []
    with Model(path) as model:
        for tokens in sequences:
            with (
                Context(model, n_ctx=512, embeddings=True, pooling_type="rank", **ONE) as context,
                Batch(len(tokens)) as batch,
            ):
                batch.extend(tokens, 0, logits="all")
                (context.encode if context.memory is None else context.decode)(batch)
                rows.append(np.array(context.seq_embeddings(0)))
    return np.array(rows, np.float64)


def by_index(ranked):
    return [one.score for one in sorted(ranked, key=lambda one: one.index)]


def test_scores_equal_those_of_each_pair_alone(make, bert):
    rng = np.random.default_rng(3)
    query, documents = "the cat", [*texts(rng, 100), "", "a"]
    ranked = make(bert).rerank(query, documents)
    pairs = [[CLS, *bert_tokens(query), SEP, *bert_tokens(document), SEP] for document in documents]
    expected = rows_by_hand(bert, pairs)[:, 0]
    # flash attention computes in float16 from 64 tokens on
    np.testing.assert_allclose(by_index(ranked), expected, atol=2e-4)
    assert [one.score for one in ranked] == sorted((one.score for one in ranked), reverse=True)
    assert [one.document for one in ranked] == [documents[one.index] for one in ranked]
    assert sorted(one.index for one in ranked) == list(range(len(documents)))


def test_equal_scores_keep_the_order_in_which_they_came(make, bert):
    ranked = make(bert).rerank("q", ["b", "a", "b", "a", "b"])
    assert [[one.index for one in ranked if one.document == document] for document in "ab"] == [[1, 3], [0, 2, 4]]


@pytest.mark.parametrize("top_n", [1, 3, 99, None])
def test_top_n_gives_the_best(make, bert, top_n):
    reranker = make(bert)
    documents = texts(np.random.default_rng(4), 10)
    assert reranker.rerank("q", documents, top_n=top_n) == reranker.rerank("q", documents)[:top_n]


def test_sigmoid_makes_probabilities_in_the_same_order(make, bert):
    reranker = make(bert)
    documents = texts(np.random.default_rng(5), 10)
    raw, made = reranker.rerank("q", documents), reranker.rerank("q", documents, sigmoid=True)
    assert [one.index for one in raw] == [one.index for one in made]
    np.testing.assert_allclose([one.score for one in made], [1 / (1 + np.exp(-one.score)) for one in raw], rtol=1e-12)


def test_no_documents_give_nothing(make, bert):
    assert make(bert).rerank("q", []) == []
    assert make(bert).rerank("q", iter(())) == []


def test_documents_may_come_from_an_iterator(make, bert):
    reranker = make(bert)
    assert reranker.rerank("q", (text for text in ("a", "b"))) == reranker.rerank("q", ["a", "b"])


def test_response_has_the_shape_of_the_rerank_apis(make, bert):
    reranker = make(bert)
    documents = ["b", "a cat", "c"]
    ranked = reranker.rerank("the cat", documents)
    n = sum(3 + len(bert_tokens("the cat")) + len(bert_tokens(document)) for document in documents)
    expected = {
        "object": "list",
        "model": "tiny-bert",
        "usage": {"prompt_tokens": n, "total_tokens": n},
        "results": [{"index": one.index, "relevance_score": one.score} for one in ranked],
    }
    assert reranker.create_rerank("the cat", documents) == expected
    expected["model"] = "mine"
    expected["results"] = [
        {"index": one.index, "relevance_score": one.score, "document": {"text": documents[one.index]}}
        for one in ranked[:2]
    ]
    assert reranker.create_rerank("the cat", documents, "mine", top_n=2, return_documents=True) == expected


def test_async_twins_do_the_same(make, bert):
    reranker = make(bert)

    async def run():
        return (
            await reranker.arerank("q", ["a", "b"], top_n=1),
            await reranker.acreate_rerank("q", ["a", "b"], "mine"),
            await reranker.aclassify("a"),
        )

    assert asyncio.run(run()) == (
        reranker.rerank("q", ["a", "b"], top_n=1),
        reranker.create_rerank("q", ["a", "b"], "mine"),
        reranker.classify("a"),
    )


# layouts


XLMR = ["<s>", "<pad>", "</s>", "<unk>", "\u2581", *("\u2581" + letter for letter in LETTERS), *LETTERS, "<m>"]


def write_xlmr(path, base, **flags):
    """Write a BERT with the unigram vocabulary of XLM-R's kind."""
    assert len(XLMR) == 58
    metadata = {
        "tokenizer.ggml.model": string("t5"),
        "tokenizer.ggml.tokens": strings(*XLMR),
        "tokenizer.ggml.scores": (
            [0.0] * 4 + [-float(index) for index in range(1, 55)], models.gguf.GGUFValueType.ARRAY,
            models.gguf.GGUFValueType.FLOAT32,
        ),
        "tokenizer.ggml.token_type": (
            [3, 3, 3, 2] + [1] * 53 + [3], models.gguf.GGUFValueType.ARRAY, models.gguf.GGUFValueType.INT32,
        ),
        "tokenizer.ggml.bos_token_id": number(0),
        "tokenizer.ggml.padding_token_id": number(1),
        "tokenizer.ggml.eos_token_id": number(2),
        "tokenizer.ggml.unknown_token_id": number(3),
        "tokenizer.ggml.mask_token_id": number(57),
        "tokenizer.ggml.seperator_token_id": None,
        "tokenizer.ggml.add_bos_token": boolean(True),
        "tokenizer.ggml.add_eos_token": boolean(True),
        "tokenizer.ggml.add_space_prefix": boolean(True),
        **{f"tokenizer.ggml.{name}": value for name, value in flags.items()},
    }  # fmt: skip
    return rewrite(path, base, metadata)


def xlmr_tokens(text):
    return [
        (5 if index == 0 else 31) + LETTERS.index(letter) for word in text.split() for index, letter in enumerate(word)
    ]


@pytest.mark.parametrize(
    ("flags", "between"),
    [
        ({}, [2, 2]),
        ({"add_sep_token": boolean(True)}, [2, 2]),
        ({"add_sep_token": boolean(True), "seperator_token_id": number(57)}, [2, 57]),
        ({"add_sep_token": boolean(False)}, [2]),
    ],
)
def test_layout_of_xlm_roberta(make, folder, bert, flags, between):
    path = write_xlmr(folder / f"xlmr-{len(flags)}-{sum(between)}.gguf", bert, **flags)
    documents = ["a dog", "the cat sat", ""]
    reranker = make(path)
    assert reranker.tokenize("a dog") == [0, *xlmr_tokens("a dog"), 2]
    ranked = reranker.rerank("the cat", documents)
    pairs = [[0, *xlmr_tokens("the cat"), *between, *xlmr_tokens(document), 2] for document in documents]
    np.testing.assert_allclose(by_index(ranked), rows_by_hand(path, pairs)[:, 0], atol=1e-5)


@pytest.mark.parametrize("flags", [{"add_sep_token": False}, {"add_eos_token": True}, {"add_bos_token": True}])
def test_layout_of_bert_is_that_of_its_vocabulary_whatever_the_flags_say(make, folder, bert, flags):
    path = rewrite(
        folder / f"bert-{'-'.join(flags)}.gguf",
        bert,
        {f"tokenizer.ggml.{name}": boolean(value) for name, value in flags.items()},
    )
    pair = [CLS, *bert_tokens("the cat"), SEP, *bert_tokens("sat"), SEP]
    (ranked,) = make(path).rerank("the cat", ["sat"])
    np.testing.assert_allclose(ranked.score, rows_by_hand(path, [pair])[0, 0], atol=1e-5)


def test_special_tokens_in_texts_stay_text(make, bert):
    # as plain text they have no letters that the vocabulary knows, or other ones than the tokens
    reranker = make(bert)
    for text in ("[SEP]", "a [SEP] b"):
        (ranked,) = reranker.rerank("q", [text])
        plain = reranker.tokenize(text, add_bos=False)
        assert SEP not in plain
        pair = [CLS, *bert_tokens("q"), SEP, *plain, SEP]
        np.testing.assert_allclose(ranked.score, rows_by_hand(bert, [pair])[0, 0], atol=1e-5)


# templates and a head of two


def qwen_row(path, tokens):
    """Return the probabilities of the labels, in NumPy."""
    reader = models.gguf.GGUFReader(path)
    head = next(np.array(tensor.data, float) for tensor in reader.tensors if tensor.name == "cls.output.weight")
    logits = head @ Reference(data("target.gguf")).hidden(tokens)[-1]
    return np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()


def qwen_tokens(query, document):
    return [BOS, *toy_tokens(f"judge {query} by {document} now", add_special=False), MASK]


@pytest.mark.parametrize("sigmoid", [False, True])
def test_template_and_head_of_a_generative_reranker(make, qwen, sigmoid):
    documents = ["a dog", "the cat sat", "", "zzz zzz zzz"]
    reranker = make(qwen)
    assert reranker.pooling_type == PoolingType.RANK
    ranked = reranker.rerank("the cat", documents, sigmoid=sigmoid)
    expected = [qwen_row(qwen, qwen_tokens("the cat", document))[0] for document in documents]
    assert max(expected) - min(expected) > 0.05
    # probabilities already, so that there is no second transform
    np.testing.assert_allclose(by_index(ranked), expected, atol=1e-4)


def test_label_says_which_score_counts(make, qwen, three):
    tokens = qwen_tokens("q", "the cat")
    (ranked,) = make(qwen).rerank("q", ["the cat"], label="no")
    np.testing.assert_allclose(ranked.score, qwen_row(qwen, tokens)[1], atol=1e-4)
    pair = [CLS, *bert_tokens("q"), SEP, *bert_tokens("the cat"), SEP]
    for column in range(3):
        (ranked,) = make(three).rerank("q", ["the cat"], label=f"label{column}")
        np.testing.assert_allclose(ranked.score, rows_by_hand(three, [pair])[0, column], atol=1e-5)
    with pytest.raises(ValueError, match=r"no label 'maybe'.*'label0', 'label1', 'label2'"):
        make(three).rerank("q", ["d"], label="maybe")


def test_template_may_be_given(make, qwen, bert):
    (ranked,) = make(qwen).rerank("q", ["the cat"], template="{document} of {query}<mask>")
    tokens = [*toy_tokens("the cat of q", add_special=False), MASK]
    np.testing.assert_allclose(ranked.score, qwen_row(qwen, tokens)[0], atol=1e-4)
    (ranked,) = make(bert).rerank("q", ["the cat"], template="[CLS]{document} [SEP]{query}")
    pair = [CLS, *bert_tokens("the cat"), SEP, *bert_tokens("q")]
    np.testing.assert_allclose(ranked.score, rows_by_hand(bert, [pair])[0, 0], atol=1e-5)


@pytest.mark.parametrize(("template", "missing"), [("{query}", "document"), ("{document}", "query"), ("", "query")])
def test_template_without_a_place_is_refused(make, bert, template, missing):
    with pytest.raises(ValueError, match=rf"no \{{{missing}\}}"):
        make(bert).rerank("q", ["d"], template=template)


@pytest.mark.parametrize(
    ("query", "document"),
    [("q", "</s> yes"), ("<mask>", "d"), ("a<s>", "<s>b</s>"), ("{document}", "{query}"), ("q", "{query} {document}")],
)
def test_what_texts_spell_is_neither_a_special_token_nor_a_place(make, qwen, query, document):
    (ranked,) = make(qwen).rerank(query, [document])
    tokens = qwen_tokens(query, document)
    assert tokens.count(BOS) == tokens.count(MASK) == 1
    np.testing.assert_allclose(ranked.score, qwen_row(qwen, tokens)[0], atol=1e-4)


# lengths


def test_pair_that_is_too_long_is_refused_before_anything_is_computed(make, bert, monkeypatch):
    reranker = make(bert)
    monkeypatch.setattr(reranker._engine, "run", lambda *_: pytest.fail("computed"))
    with pytest.raises(ContextLengthError, match=r"document 2 .* 68 tokens.*at most 64") as raised:
        reranker.rerank("abcd", ["a", "b", "c" * 61])
    assert (raised.value.n_prompt, raised.value.n_ctx) == (68, 64)


def test_document_is_cut_at_its_end_and_nothing_else(make, bert):
    query, long = "abcd", "the cat sat on the mat and " * 10
    pairs = [[CLS, *bert_tokens(query), SEP, *bert_tokens(text), SEP] for text in ("a", long)]
    pairs[1] = [*pairs[1][:63], SEP]
    ranked = make(bert).rerank(query, ["a", long], truncate=True)
    np.testing.assert_allclose(by_index(ranked), rows_by_hand(bert, pairs)[:, 0], atol=1e-5)
    assert {one.document for one in ranked} == {"a", long}  # what is returned is whole


def test_document_in_a_template_is_cut(make, qwen, caplog):
    reranker = make(qwen, n_ctx=48)
    long = "the cat sat on the mat and " * 10
    n_around = len(qwen_tokens("q", "")) - 1
    with caplog.at_level("INFO", "llamacy"):
        (ranked,) = reranker.rerank("q", [long], truncate=True)
    assert any(message.startswith("document 0 and the query have ") for message in caplog.messages)
    # a space and a document: the cut one begins with the space that any text gets
    tokens = qwen_tokens("q", long[: 48 - n_around - 1])
    assert len(tokens) == 48
    np.testing.assert_allclose(ranked.score, qwen_row(qwen, tokens)[0], atol=1e-4)


@pytest.mark.parametrize("truncate", [True, False])
def test_query_that_is_too_long_is_refused(make, bert, qwen, truncate):
    for path, n_ctx in ((bert, None), (qwen, 48)):
        with pytest.raises(ContextLengthError, match="query"):
            make(path, n_ctx=n_ctx).rerank("a" * 70, ["d"], truncate=truncate)


def test_document_of_many_bytes_a_character_is_cut_between_characters(make, qwen):
    reranker = make(qwen, n_ctx=48)
    (ranked,) = reranker.rerank("q", ["é" * 100], truncate=True)
    n = (48 - len(qwen_tokens("q", ""))) // 2
    np.testing.assert_allclose(ranked.score, qwen_row(qwen, qwen_tokens("q", "é" * n))[0], atol=1e-4)


# refused


def test_model_without_head_is_refused_and_its_pooling_named(make, folder, bert_path):
    reranker = make(bert_path)
    for call in (
        lambda: reranker.rerank("q", ["d"]),
        lambda: reranker.create_rerank("q", ["d"]),
        lambda: reranker.classify("d"),
    ):
        with pytest.raises(PoolingError, match=r"'rank'.*'mean'"):
            call()
    with pytest.raises(PoolingError, match="'none'"):
        make(data("llama.gguf")).rerank("q", ["d"])


def test_reranker_that_pools_otherwise_is_refused(make, bert):
    with pytest.raises(PoolingError, match="'cls'"):
        make(bert, pooling_type="cls").rerank("q", ["d"])


def test_several_labels_without_a_yes_are_refused(make, three):
    with pytest.raises(PoolingError, match=r"'label0', 'label1', 'label2'.*label="):
        make(three).rerank("q", ["d"])


def test_model_without_template_or_separators_is_refused(make, folder, qwen):
    path = rewrite(
        folder / "bare.gguf", qwen, {"tokenizer.chat_template.rerank": None, "tokenizer.chat_templates": None}
    )
    with pytest.raises(PoolingError, match="template"):
        make(path).rerank("q", ["d"])
    assert make(path).rerank("q", ["d"], template=TEMPLATE) == make(qwen).rerank("q", ["d"])


def test_softmax_over_one_output_is_refused(make, folder, qwen):
    def one(name, tensor):
        return np.array(tensor.data)[:1] if name == "cls.output.weight" else None

    path = rewrite(folder / "one.gguf", qwen, {"qwen3.classifier.output_labels": strings("yes")}, one)
    with pytest.raises(PoolingError, match="one output"):
        make(path).rerank("q", ["d"])


def test_head_without_its_last_layer_is_refused(make, folder, bert):
    path = rewrite(folder / "half.gguf", bert, without=("cls.output.weight", "cls.output.bias"))
    with pytest.raises(ValueError, match="classification head"):
        make(path)


@pytest.mark.parametrize(
    ("query", "documents", "options"),
    [
        ("q", "one text", {}),
        ("q", b"bytes", {}),
        ("q", None, {}),
        ("q", 5, {}),
        ("q", ["a", 5], {}),
        ("q", ["a", None], {}),
        (5, ["a"], {}),
        (None, ["a"], {}),
        (["q"], ["a"], {}),
        ("q", ["a"], {"top_n": 1.5}),
        ("q", ["a"], {"top_n": True}),
        ("q", {"a": 1}, {}),
        ("q", {"a", "b"}, {}),
        ("q", [{"text": "a"}], {}),
        ("q", ["a"], {"template": 5}),
    ],
)
def test_other_types_are_refused(make, bert, query, documents, options):
    with pytest.raises(TypeError):
        make(bert).rerank(query, documents, **options)


@pytest.mark.parametrize("top_n", [0, -1])
def test_top_n_below_one_is_refused(make, bert, top_n):
    with pytest.raises(ValueError, match="top_n"):
        make(bert).rerank("q", ["a"], top_n=top_n)


@pytest.mark.parametrize(
    ("query", "documents", "template", "name"),
    [
        ("q\ud800", ["a"], None, "query has a lone surrogate at index 1"),
        ("q", ["a", "\udfff"], None, "document 1 has a lone surrogate at index 0"),
        ("q", ["a", "\udfff"], "{query} {document}", "document 1 has a lone surrogate at index 0"),
        ("q", ["a"], "\ud800{query}{document}", "template has a lone surrogate at index 0"),
    ],
)
def test_text_that_is_no_unicode_is_named(make, bert, query, documents, template, name):
    with pytest.raises(TokenizeError, match=name):
        make(bert).rerank(query, documents, template=template)


def test_pair_of_nothing_is_named(make, bert):
    reranker = make(bert)
    with pytest.raises(ValueError, match="document 1 and the query are empty"):
        reranker.rerank("", ["a", ""], template="{query}{document}")
    assert len(reranker.rerank("", ["a", ""])) == 2


def test_adapter_that_there_is_not_is_told_without_documents(make, bert):
    for method in (make(bert).rerank, make(bert).create_rerank):
        with pytest.raises(AdapterError, match="there is no adapter 'x'"):
            method("q", [], lora={"x": 1.0})


def test_decode_that_fails_raises(make, bert, monkeypatch):
    reranker = make(bert)
    reranker.rerank("q", ["a"])

    def fail(*_):
        raise DecodeError("failed", status=-3)

    monkeypatch.setattr(reranker._engine, "_compute", fail)
    with pytest.raises(DecodeError):
        reranker.rerank("q", ["a"])


# classification


def softmax(rows):
    rows = np.exp(rows - rows.max(axis=-1, keepdims=True))
    return rows / rows.sum(axis=-1, keepdims=True)


def test_labels_of_texts(make, three):
    classifier = make(three)
    given = ["the cat", "a", "", "zzz yyy"]
    rows = rows_by_hand(three, [[CLS, *bert_tokens(text), SEP] for text in given])
    for options, expected in (({}, softmax(rows)), ({"softmax": False}, rows)):
        made = classifier.classify(given, **options)
        for one, row in zip(made, expected, strict=True):
            assert one.label == f"label{np.argmax(row)}"
            assert list(one.scores.values()) == sorted(one.scores.values(), reverse=True)
            assert one.score == one.scores[one.label] == max(one.scores.values())
            np.testing.assert_allclose([one.scores[f"label{index}"] for index in range(3)], row, atol=1e-5)
    assert classifier.classify("the cat") == classifier.classify(["the cat"])[0]
    assert classifier.classify([]) == []


def test_one_label_gets_a_sigmoid(make, bert):
    row = rows_by_hand(bert, [[CLS, *bert_tokens("the cat"), SEP]])[0, 0]
    made = make(bert).classify("the cat")
    assert made.label == "label0"
    np.testing.assert_allclose(made.score, 1 / (1 + np.exp(-row)), atol=1e-6)
    np.testing.assert_allclose(make(bert).classify("the cat", softmax=False).score, row, atol=1e-6)


def test_probabilities_of_the_model_are_left_alone(make, qwen):
    expected = qwen_row(qwen, toy_tokens("the cat"))
    for options in ({}, {"softmax": False}):
        made = make(qwen).classify("the cat", **options)
        np.testing.assert_allclose([made.scores["yes"], made.scores["no"]], expected, atol=1e-4)


def test_head_without_labels_gets_names(make, folder, bert):
    path = rewrite(folder / "unnamed.gguf", bert, {"bert.classifier.output_labels": None})
    assert make(path).classify("a").label == "LABEL_0"


def test_labels_of_one_name_are_told_apart(make, folder, three):
    path = rewrite(folder / "twice.gguf", three, {"bert.classifier.output_labels": strings("x", "y", "x")})
    row = rows_by_hand(three, [[CLS, *bert_tokens("the cat"), SEP]])[0]
    made = make(path).classify("the cat", softmax=False)
    np.testing.assert_allclose([made.scores[name] for name in ("LABEL_0", "y", "LABEL_2")], row, atol=1e-5)
    with pytest.raises(ValueError, match="no label 'x'"):
        make(path).rerank("q", ["d"], label="x")


def test_text_to_classify_that_is_too_long(make, three):
    with pytest.raises(ContextLengthError, match=r"text 1 .*64"):
        make(three).classify(["a", "b" * 90])
    made = make(three).classify("b" * 90, truncate=True)
    row = rows_by_hand(three, [[CLS, *bert_tokens("b" * 62), SEP]])[0]
    np.testing.assert_allclose([made.scores[f"label{index}"] for index in range(3)], softmax(row), atol=1e-5)
