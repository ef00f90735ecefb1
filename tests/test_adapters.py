"""LoRA adapters and control vectors of a Llama: what requests compute with them, and what they keep of the memory."""

from __future__ import annotations

import pickle
import threading

import numpy as np
import pytest

from llamacy import Llama
from llamacy.core.adapter import LoraAdapter
from llamacy.core.control_vector import ControlVector
from llamacy.errors import AdapterError, ClosedError, InUseError
from tests.helpers import data, models, toy_tokens
from tests.helpers.compute import EXACT
from tests.helpers.reference import Reference, control_directions, lora_deltas

MODEL = data("llama.gguf")
PROMPT = toy_tokens("the quick brown fox jumps over")


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lora")
    return {
        name: models.write_lora(folder / f"{name}.gguf", MODEL, seed=seed)
        for seed, name in enumerate(("french", "poems", "third"), start=20)
    }


@pytest.fixture
def make_llama(closing):
    def make(model=MODEL, **params):
        return closing(Llama(model, **EXACT | params))

    return make


@pytest.fixture
def llama(make_llama, paths):
    llama = make_llama(chat_template="{% for m in messages %}{{ m.content }}{% endfor %}")
    for path in paths.values():
        llama.load_lora(path, scale=0)
    return llama


def row_of(llama, prompt=PROMPT, **options):
    """Return the logits after a prompt, and how many of its tokens were in the memory."""
    rows = []
    result = llama(
        prompt, max_tokens=1, temperature=0, logits_processor=lambda _, scores: rows.append(scores.copy()), **options
    )
    return rows[0], result["usage"]["prompt_tokens_details"]["cached_tokens"]


def expected_row(scales, paths, prompt=PROMPT):
    deltas = {}
    for name, scale in scales.items():
        for tensor, delta in lora_deltas(paths[name], scale).items():
            deltas[tensor] = deltas.get(tensor, 0) + delta
    return Reference(MODEL, deltas).logits(prompt)[-1]


MIXES = [{}, {"french": 1.0}, {"poems": 0.5}, {"french": -1.0, "poems": 2.0}, {"poems": 1, "third": 0.3, "french": 1}]


@pytest.mark.parametrize("scales", MIXES)
def test_request_computes_with_the_adapters_that_it_asks_for(llama, paths, scales):
    logits, _ = row_of(llama, lora=scales)
    assert np.abs(logits - expected_row(scales, paths)).max() < 1e-3


def test_chat_and_tokens_take_adapters_too(llama, paths):
    messages = [{"role": "user", "content": "the cat"}]
    prompt = llama.tokenize("the cat")
    expected = Reference(MODEL, lora_deltas(paths["french"], 3.0)).greedy(prompt, 1)
    assert expected != Reference(MODEL).greedy(prompt, 1)
    rows = []
    llama.create_chat_completion(
        messages, max_tokens=1, lora={"french": 3.0}, logits_processor=lambda _, scores: rows.append(scores.copy())
    )
    assert [int(np.argmax(rows[0]))] == expected
    assert next(llama.generate(prompt, temperature=0, lora={"french": 3.0})) == expected[0]


def test_scale_of_zero_equals_the_base_exactly(make_llama, llama):
    whole = {"cache_prompt": False}  # the rows of one token and of many are added up in another order
    base, _ = row_of(make_llama())
    assert np.array_equal(row_of(llama, lora={"french": 0.0}, **whole)[0], base)
    assert np.array_equal(row_of(llama, **whole)[0], base)
    assert not np.array_equal(row_of(llama, lora={"french": 1.0}, **whole)[0], base)
    assert np.array_equal(row_of(llama, lora={"french": -0.0}, **whole)[0], base)


def test_default_scales_hold_for_requests_that_say_nothing(llama, paths):
    llama.set_lora_scale("french", 0.5)
    llama.set_lora_scale("third", 2)
    assert np.abs(row_of(llama)[0] - expected_row({"french": 0.5, "third": 2.0}, paths)).max() < 1e-3
    # one that says something gets that and nothing else
    assert np.abs(row_of(llama, lora={"poems": 1.0})[0] - expected_row({"poems": 1.0}, paths)).max() < 1e-3
    assert np.abs(row_of(llama, lora={})[0] - expected_row({}, paths)).max() < 1e-3
    assert np.abs(row_of(llama, lora=None)[0] - expected_row({"french": 0.5, "third": 2.0}, paths)).max() < 1e-3


@pytest.mark.parametrize("n_seq_max", [1, 3])
def test_switching_never_uses_what_another_adapter_computed(make_llama, paths, n_seq_max):
    llama = make_llama(n_seq_max=n_seq_max)
    for path in paths.values():
        llama.load_lora(path, scale=0)
    fresh = {}
    for index, scales in enumerate(MIXES):
        with Llama(MODEL, **EXACT) as alone:
            for path in paths.values():
                alone.load_lora(path, scale=0)
            fresh[index] = alone(PROMPT, max_tokens=24, temperature=0, lora=scales)["choices"][0]["text"]
    assert len(set(fresh.values())) > 2
    rng = np.random.default_rng(1)
    for index in [*range(len(MIXES)), *rng.integers(0, len(MIXES), 40)]:
        result = llama(PROMPT, max_tokens=24, temperature=0, lora=MIXES[index])
        assert result["choices"][0]["text"] == fresh[index], MIXES[index]


@pytest.mark.parametrize("name", ["gemma3.gguf", "qwen35.gguf", "mamba.gguf"])
def test_switching_is_right_for_other_kinds_of_memory(make_llama, tmp_path, name):
    targets = ["ssm_in", "ssm_out"] if name == "mamba.gguf" else ["attn_q", "attn_v", "ffn_down"]
    path = models.write_lora(tmp_path / "a.gguf", data(name), targets=targets)
    llama = make_llama(data(name))
    llama.load_lora(path, name="a", scale=0)
    base, adapted = row_of(llama)[0], row_of(make_llama(data(name), lora_path=path))[0]
    assert np.abs(base - adapted).max() > 1e-2
    for _ in range(3):
        np.testing.assert_allclose(row_of(llama, lora={"a": 1.0})[0], adapted, atol=1e-4)
        np.testing.assert_allclose(row_of(llama)[0], base, atol=1e-4)


def test_same_adapters_keep_what_the_memory_has(llama):
    n = len(PROMPT) - 1
    row_of(llama, lora={"french": 1.0, "poems": 0.5})
    # the order doesn't matter, nor what is left out by its scale
    assert row_of(llama, lora={"poems": 0.5, "third": 0, "french": 1})[1] == n
    assert row_of(llama, lora={"french": 1.0, "poems": 0.25})[1] == 0
    assert row_of(llama, lora={"french": 1.0})[1] == 0
    assert row_of(llama)[1] == 0
    assert row_of(llama, lora={})[1] == n


def test_file_that_was_loaded_again_is_another_adapter(llama, paths):
    row_of(llama, lora={"french": 1.0})
    llama.unload_lora("french")
    llama.load_lora(paths["poems"], name="french")
    logits, n_cached = row_of(llama, lora={"french": 1.0})
    assert n_cached == 0
    assert np.abs(logits - expected_row({"poems": 1.0}, paths)).max() < 1e-3


@pytest.mark.parametrize("n_seq_max", [1, 4])
def test_choices_and_prompts_of_a_request_compute_with_its_adapters(make_llama, paths, n_seq_max):
    llama = make_llama(n_seq_max=n_seq_max)
    llama.load_lora(paths["french"], scale=0)
    adapted = Reference(MODEL, lora_deltas(paths["french"], 2.0))
    prompts = [PROMPT, toy_tokens("the cat")]
    row_of(llama, prompts[1])
    result = llama(prompts, max_tokens=4, n=2, temperature=0, lora={"french": 2.0})
    expected = [llama.detokenize(adapted.greedy(prompt, 4)).decode() for prompt in prompts for _ in range(2)]
    assert [choice["text"] for choice in result["choices"]] == expected


def test_what_is_loaded_is_told(make_llama, paths):
    llama = make_llama(lora_path=paths["french"], lora_scale=0.5)
    name = llama.load_lora(str(paths["poems"]), name="verse", scale=2)
    with paths["third"].open("rb") as file:
        assert llama.load_lora(file, name="from a file") == "from a file"
    assert name == "verse"
    assert {key: (lora.path, lora.scale) for key, lora in llama.loras.items()} == {
        "french": (str(paths["french"]), 0.5), "verse": (str(paths["poems"]), 2.0), "from a file": (None, 1.0),
    }  # fmt: skip
    assert f"name='verse', path={str(paths['poems'])!r}, scale=2.0" in repr(llama.loras)
    assert llama.loras["verse"].alora_invocation_tokens == ()
    assert llama.loras["verse"].adapter.metadata["general.name"] == "tiny-lora"
    with pytest.raises(TypeError):
        llama.loras["verse"] = None
    seen = llama.loras
    llama.unload_lora("verse")
    assert list(llama.loras) == ["french", "from a file"]
    assert "verse" in seen  # as it was


@pytest.mark.parametrize("ask", ["completion", "chat", "generate", "unload", "scale"])
def test_unknown_name_is_refused_with_the_nearest(llama, ask):
    calls = {
        "completion": lambda: llama("x", lora={"frensh": 1.0}),
        "chat": lambda: llama.create_chat_completion([{"role": "user", "content": "x"}], lora={"frensh": 1.0}),
        "generate": lambda: llama.generate(PROMPT, lora={"frensh": 1.0}),
        "unload": lambda: llama.unload_lora("frensh"),
        "scale": lambda: llama.set_lora_scale("frensh", 1.0),
    }
    epoch = llama.context.epoch
    with pytest.raises(AdapterError, match=r"'frensh'.*did you mean 'french'"):
        calls[ask]()
    assert llama.context.epoch == epoch  # nothing was computed


def test_name_without_any_adapter_is_refused(make_llama):
    with pytest.raises(AdapterError, match="none is loaded"):
        make_llama()("x", lora={"french": 1.0})


@pytest.mark.parametrize("scale", [float("nan"), float("inf"), 1e39, -1e39, 10**400])
def test_scale_that_is_no_finite_float_is_refused(llama, paths, scale):
    for call in (
        lambda: llama("x", lora={"french": scale}),
        lambda: llama.set_lora_scale("french", scale),
        lambda: llama.load_lora(paths["french"], name="more", scale=scale),
    ):
        with pytest.raises(AdapterError, match="finite"):
            call()
    assert llama.loras["french"].scale == 0
    assert "more" not in llama.loras


def test_list_of_dicts_and_the_name_that_forks_have_for_it_are_taken(llama, paths):
    expected = expected_row({"french": 1.0, "poems": 0.5}, paths)
    given = [{"name": "french"}, {"name": "poems", "scale": 0.5}]
    for option in ({"lora": given}, {"active_loras": tuple(given)}):
        assert np.abs(row_of(llama, **option)[0] - expected).max() < 1e-3
    assert np.abs(row_of(llama, active_loras=[])[0] - expected_row({}, paths)).max() < 1e-3
    with pytest.raises(AdapterError, match="twice"):
        llama("x", lora=[{"name": "french"}, {"name": "french"}])
    with pytest.raises(TypeError, match="twice"):
        llama("x", lora={}, active_loras=[])


@pytest.mark.parametrize(
    "lora",
    [
        "french", ["french"], [("french", 1.0)], 1, {"french": "1"}, {"french": True}, [{}], [{"scale": 1.0}],
        [{"name": "french", "weight": 1.0}], [{"name": "french", "scale": None}], iter([{"name": "french"}]),
        [{"name": ["french"]}], [{"name": 1}],
    ],
)  # fmt: skip
def test_lora_that_is_no_mapping_to_numbers_is_refused(llama, lora):
    with pytest.raises(TypeError):
        llama("x", lora=lora)


def test_load_that_fails_changes_nothing(llama, paths, tmp_path):
    text = tmp_path / "text.gguf"
    text.write_text("no adapter")
    before = dict(llama.loras)
    for call, error in (
        (lambda: llama.load_lora(text), AdapterError),
        (lambda: llama.load_lora(tmp_path / "missing.gguf"), AdapterError),
        (lambda: llama.load_lora(MODEL), AdapterError),
        (lambda: llama.load_lora(paths["french"]), AdapterError),
        (lambda: llama.load_lora(paths["french"], name=""), TypeError),
        (lambda: llama.load_lora(paths["french"], name=3), TypeError),
        (lambda: llama.load_lora(None, name="none"), (AdapterError, TypeError, AttributeError)),
    ):
        with pytest.raises(error):
            call()
    assert dict(llama.loras) == before


def test_adapter_in_use_by_a_stream_is_not_unloaded(llama):
    stream = llama(PROMPT, max_tokens=8, temperature=0, stream=True, lora={"french": 1.0})
    next(stream)
    with pytest.raises(InUseError, match="request"):
        llama.unload_lora("french")
    llama.unload_lora("poems")  # which it doesn't use
    list(stream)
    llama.unload_lora("french")
    assert list(llama.loras) == ["third"]


def test_adapter_in_use_by_another_thread_is_not_unloaded(llama):
    begun, done = threading.Event(), threading.Event()

    def wait(_, __):
        begun.set()
        done.wait(30)

    def run():
        llama(PROMPT, max_tokens=1, lora={"french": 1.0}, logits_processor=wait)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        assert begun.wait(30)
        with pytest.raises(InUseError):
            llama.unload_lora("french")
        with pytest.raises(InUseError):
            llama.set_control_vector(np.zeros((1, 64), np.float32))
        llama.unload_lora("poems")
        assert "french" in llama.loras
    finally:
        done.set()
        thread.join()
    llama.unload_lora("french")


def test_adapter_on_a_context_of_somebody_else_is_not_unloaded(llama, make_context):
    context = make_context(llama.model)
    context.set_adapters_lora([(llama.loras["french"].adapter, 1.0)])
    with pytest.raises(InUseError, match="context"):
        llama.unload_lora("french")
    assert "french" in llama.loras
    context.close()
    llama.unload_lora("french")


def test_request_whose_adapter_goes_while_it_waits_raises(llama):
    # a request of another thread runs, which the one that waits can't begin before
    begun, done = threading.Event(), threading.Event()
    raised = []

    def hold(_, __):
        begun.set()
        done.wait(30)

    def run(**options):
        try:
            llama(PROMPT, max_tokens=1, **options)
        except ClosedError as error:
            raised.append(error)

    threads = [threading.Thread(target=run, kwargs={"logits_processor": hold})]
    threads[0].start()
    assert begun.wait(30)
    request = threading.Event()
    applied = llama._adapters.applied

    def seen(*given):
        result = applied(*given)
        request.set()
        return result

    llama._adapters.applied = seen
    threads.append(threading.Thread(target=run, kwargs={"lora": {"poems": 1.0}}))
    threads[1].start()
    assert request.wait(30)
    llama.unload_lora("poems")
    done.set()
    for thread in threads:
        thread.join()
    assert ["adapter" in str(error) for error in raised] == [True]
    row_of(llama)  # works on


@pytest.mark.parametrize("n_seq_max", [1, 4])
def test_threads_with_different_adapters_get_what_each_gets_alone(make_llama, paths, n_seq_max):
    llama = make_llama(n_seq_max=n_seq_max)
    for path in paths.values():
        llama.load_lora(path, scale=0)
    expected = [
        llama(PROMPT, max_tokens=12, temperature=0, cache_prompt=False, lora=scales)["choices"][0]["text"]
        for scales in MIXES
    ]
    got = []

    def run(index):
        for _ in range(6):
            result = llama(PROMPT, max_tokens=12, n=2, temperature=0, lora=MIXES[index])
            got.extend((index, choice["text"]) for choice in result["choices"])

    threads = [threading.Thread(target=run, args=(index,)) for index in range(len(MIXES))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == 12 * len(MIXES)
    assert all(text == expected[index] for index, text in got)


def test_loading_and_unloading_beside_requests_disturbs_none(llama, paths):
    expected = llama(PROMPT, max_tokens=6, temperature=0, lora={"french": 1.0})["choices"][0]["text"]
    stop, failures = threading.Event(), []

    def change(name):
        while not stop.is_set():
            try:
                llama.load_lora(paths["third"], name=name, scale=0)
                llama.set_lora_scale(name, 0.0)
                llama.unload_lora(name)
            except Exception as error:
                failures.append(error)
                return

    threads = [threading.Thread(target=change, args=(f"more{index}",)) for index in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(40):
            result = llama(PROMPT, max_tokens=6, temperature=0, lora={"french": 1.0})
            assert result["choices"][0]["text"] == expected
            assert {"french", "poems", "third"} <= set(llama.loras)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not failures
    assert list(llama.loras) == ["french", "poems", "third"]


def test_adapters_are_freed_with_the_llama_and_once(llama_model, paths):
    # the model is shared and stays, so nobody else frees them; the fixture counts
    with Llama(llama_model, lora_path=paths["french"], **EXACT) as llama:
        llama.load_lora(paths["poems"])
        llama("x", max_tokens=1, lora={"poems": 1.0})
        adapters = [lora.adapter for lora in llama.loras.values()]
    assert all(adapter.closed for adapter in adapters)
    llama.close()
    assert not llama.loras
    with pytest.raises(ClosedError):
        llama.load_lora(paths["third"])
    with pytest.raises(AdapterError):
        llama.unload_lora("french")


def test_two_llamas_of_one_model_have_adapters_of_their_own(closing, llama_model, paths):
    one, other = (closing(Llama(llama_model, **EXACT)) for _ in range(2))
    one.load_lora(paths["french"])
    assert np.abs(row_of(one)[0] - expected_row({"french": 1.0}, paths)).max() < 1e-3
    assert np.abs(row_of(other)[0] - expected_row({}, paths)).max() < 1e-3
    with pytest.raises(AdapterError):
        other("x", lora={"french": 1.0})


@pytest.mark.parametrize("shape", ["path", "paths", "pairs", "mixed"])
def test_constructor_takes_one_or_several(make_llama, paths, shape):
    one, two = paths["french"], paths["poems"]
    given, expected = {
        "path": (str(one), {"french": 0.5}),
        "paths": ([one, two], {"french": 0.5, "poems": 0.5}),
        "pairs": ([(one, 1.0), [two, 2.0]], {"french": 1.0, "poems": 2.0}),
        "mixed": ((one, (str(two), 2)), {"french": 0.5, "poems": 2.0}),
    }[shape]
    llama = make_llama(lora_path=given, lora_scale=0.5)
    assert {name: lora.scale for name, lora in llama.loras.items()} == expected
    assert np.abs(row_of(llama)[0] - expected_row(expected, paths)).max() < 1e-3
    again = pickle.loads(pickle.dumps(llama))
    assert {name: lora.scale for name, lora in again.loras.items()} == expected
    again.close()


@pytest.mark.parametrize(
    ("given", "error"),
    [
        (5, TypeError),
        ([5], TypeError),
        ([("french", 1.0, 2.0)], TypeError),
        ([("missing.gguf", 1.0)], AdapterError),
        ({"french": 1.0}, TypeError),
    ],
)
def test_constructor_refuses_other_things_and_frees_what_it_has(llama_model, given, error):
    with pytest.raises(error, match=r"lora_path|missing"):
        Llama(llama_model, lora_path=given, **EXACT)


def test_constructor_that_fails_at_the_second_frees_the_first(llama_model, paths):
    with pytest.raises(AdapterError):
        Llama(llama_model, lora_path=[paths["french"], "missing.gguf"], **EXACT)


def test_pickle_leaves_out_what_was_loaded_later(llama, closing):
    assert not closing(pickle.loads(pickle.dumps(llama))).loras


def test_adapters_set_on_the_context_hold_when_none_is_loaded_here(make_llama, paths):
    llama = make_llama()
    with LoraAdapter(llama.model, paths["french"]) as adapter:
        llama.context.set_adapters_lora([(adapter, 1.0)])
        assert np.abs(row_of(llama)[0] - expected_row({"french": 1.0}, paths)).max() < 1e-3
        llama.context.set_adapters_lora([])


# control vectors


@pytest.fixture(scope="module")
def vector_path(tmp_path_factory):
    return models.write_control_vector(tmp_path_factory.mktemp("vector") / "v.gguf", MODEL)


def directions_of(path):
    rows = control_directions(path)
    return np.array([rows[layer] for layer in sorted(rows)], np.float32)


@pytest.mark.parametrize("kind", ["path", "array", "rows", "float64", "vector"])
@pytest.mark.parametrize("scale", [1.0, -0.5])
def test_control_vector_equals_reference_and_is_cleared(make_llama, vector_path, kind, scale):
    llama = make_llama()
    base, _ = row_of(llama)
    directions = directions_of(vector_path)
    source = {
        "path": vector_path, "array": directions, "rows": directions.tolist(), "float64": directions.astype(float),
        "vector": ControlVector(directions),
    }[kind]  # fmt: skip
    llama.set_control_vector(source, scale)
    logits, n_cached = row_of(llama)
    assert n_cached == 0
    assert np.abs(logits - base).max() > 1e-2
    expected = Reference(MODEL).logits(PROMPT, directions=control_directions(vector_path, scale))[-1]
    assert np.abs(logits - expected).max() < 1e-3
    llama.clear_control_vector()
    assert np.array_equal(row_of(llama)[0], base)


def test_control_vector_of_some_layers_only(make_llama, vector_path):
    llama = make_llama()
    rows = control_directions(vector_path)
    last = max(rows)
    for source in (vector_path, directions_of(vector_path), ControlVector(directions_of(vector_path), last)):
        layers = None if isinstance(source, ControlVector) else (last, last)
        llama.set_control_vector(source, layers=layers)
        expected = Reference(MODEL).logits(PROMPT, directions={last: rows[last]})[-1]
        assert np.abs(row_of(llama)[0] - expected).max() < 1e-3


def test_control_vector_and_adapter_go_together(llama, paths, vector_path):
    llama.set_control_vector(vector_path)
    expected = Reference(MODEL, lora_deltas(paths["french"])).logits(
        PROMPT, directions=control_directions(vector_path)
    )[-1]
    assert np.abs(row_of(llama, lora={"french": 1.0})[0] - expected).max() < 1e-3


@pytest.mark.parametrize(
    ("vector", "options"),
    [
        ("missing.gguf", {}),
        (np.zeros((1, 63), np.float32), {}),
        (np.zeros((99, 64), np.float32), {}),
        (np.full((1, 64), np.nan), {}),
        (np.full((1, 64), 1e30), {"scale": 1e30}),
        (np.zeros(64), {}),
        (np.zeros((1, 64)), {"scale": float("inf")}),
        (np.zeros((1, 64)), {"scale": "1"}),
        (np.zeros((1, 64)), {"scale": 10**400}),
        (np.zeros((1, 64)), {"layers": (1, 2)}),
    ],
)
def test_control_vector_that_is_wrong_is_refused_and_changes_nothing(make_llama, vector_path, vector, options):
    llama = make_llama()
    llama.set_control_vector(vector_path)
    expected, _ = row_of(llama)
    with pytest.raises(AdapterError):
        llama.set_control_vector(vector, **options)
    np.testing.assert_allclose(row_of(llama)[0], expected, atol=1e-5)


@pytest.mark.parametrize(
    ("vector", "options", "message"),
    [
        ({}, {}, "is a GGUF file, a ControlVector, or numbers of shape"),
        (object(), {}, "is a GGUF file, a ControlVector, or numbers of shape"),
        ([["a"]], {}, "is a GGUF file, a ControlVector, or numbers of shape"),
        ([[1.0], [1.0, 2.0]], {}, "is a GGUF file, a ControlVector, or numbers of shape"),
        *(
            (np.zeros((1, 64)), {"layers": layers}, "layers must be the first and the last layer")
            for layers in (1, (1,), (1, 1, 1), "11", (1.0, 1.0), (None, 1), (True, True), {})
        ),
    ],
)
def test_control_vector_of_another_type_is_told(make_llama, vector, options, message):
    with pytest.raises(TypeError, match=message):
        make_llama().set_control_vector(vector, **options)


def test_control_vector_is_not_changed_under_a_stream(make_llama, vector_path):
    llama = make_llama()
    stream = llama(PROMPT, max_tokens=4, stream=True)
    next(stream)
    with pytest.raises(InUseError):
        llama.set_control_vector(vector_path)
    stream.close()
    llama.set_control_vector(vector_path)
