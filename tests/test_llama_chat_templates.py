"""Which template a `Llama` chats with, what reaches it, and what it does that is wrong."""

from __future__ import annotations

import pytest

from llamacy.core.model import Model
from llamacy.errors import ChatTemplateError, ChatTemplateLimitError
from llamacy.llama import Llama
from tests.helpers import BOS, data, scripted
from tests.helpers.chats import WEATHER, only, user, vendored

PLAIN = "{% for m in messages %}[{{ m.role }}: {{ m.content }}]{% endfor %}"
HI = user("hi")


@pytest.fixture
def make(closing, model_dir):
    """Return a function that makes a Llama of a tiny model that has templates."""

    def llama(written=None, name="templates", **options):
        path = scripted.write_model(model_dir / f"{name}.gguf", chat_template=written)
        return closing(Llama(path, n_ctx=1024, n_threads=1, **options))

    return llama


def test_own_template_is_used(make):
    llama = make(PLAIN)
    assert llama.chat_prompt(HI) == "[user: hi]"
    assert llama.chat_template.source == PLAIN


def test_model_without_template_says_what_to_do(make):
    llama = make()
    with pytest.raises(ChatTemplateError, match=r"chat_format='chatml'.*create_completion"):
        llama.create_chat_completion(HI, max_tokens=1)
    with pytest.raises(ChatTemplateError, match="no chat template"):
        _ = llama.chat_template
    assert llama.create_completion("hi", max_tokens=1)["usage"]["completion_tokens"] <= 1


def test_other_template_is_given_as_text_or_file(make, tmp_path):
    path = tmp_path / "other.jinja"
    path.write_text("{{ messages[0].content }}é", encoding="utf-8")
    for template in (path, str(path), "{{ messages[0].content }}é"):
        assert make(PLAIN, chat_template=template).chat_prompt(HI) == "hié"


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"chat_template": "nowhere.jinja"}, FileNotFoundError, "nowhere.jinja"),
        ({"chat_template": "{% for %}"}, ChatTemplateError, "line 1"),
        ({"chat_format": "chatlm"}, ValueError, "chatml"),
        ({"chat_template_name": "other"}, ValueError, "rag"),
        ({"chat_format": "chatml", "chat_template": PLAIN}, TypeError, "chat_format and chat_template"),
    ],
    ids=str,
)
def test_wrong_template_is_told_when_the_model_is_loaded(make, options, error, words):
    with pytest.raises(error, match=words):
        make([{"name": "default", "template": PLAIN}, {"name": "rag", "template": "x"}], "named", **options)


def test_named_templates(make):
    templates = [
        {"name": "default", "template": PLAIN},
        {"name": "tool_use", "template": "{{ tools[0].function.name }}, {{ messages[0].content }}"},
        {"name": "rag", "template": "{{ documents[0].text }}, {{ messages[0].content }}"},
    ]
    llama = make(templates, "named")
    assert llama.chat_prompt(HI) == "[user: hi]"
    assert llama.chat_prompt(HI, tools=[WEATHER]) == "get_weather, hi"
    rag = make(templates, "named", chat_template_name="rag")
    assert rag.chat_prompt(HI, documents=[{"text": "Rain."}]) == "Rain., hi"


def test_classic_format_by_its_name(make):
    llama = make(PLAIN, chat_format="llama-2")
    assert llama.chat_prompt(HI).endswith("[INST] hi [/INST]")
    stopped = make(PLAIN, chat_format="chatml")
    text = "Yes.<|im_end|>no"
    result = stopped.create_chat_completion(HI, logits_processor=scripted.writing(text), max_tokens=40)
    assert (only(result)["content"], result["choices"][0]["finish_reason"]) == ("Yes.", "stop")


def test_model_whose_template_is_broken_still_completes_texts(make):
    llama = make("{% if %}", "broken")
    with pytest.raises(ChatTemplateError, match="line 1"):
        llama.create_chat_completion(HI, max_tokens=1)
    assert llama.create_completion("hi", max_tokens=1)["usage"]["completion_tokens"] <= 1


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("{{ ''.__class__.__mro__[1].__subclasses__() }}", ChatTemplateError),
        ("{% for i in range(10**5) %}{% for i in range(10**5) %}x{% endfor %}{% endfor %}", ChatTemplateLimitError),
        ("{{ 'x' * 10**10 }}", ChatTemplateLimitError),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", ChatTemplateError),
        ("{{ cycler.__init__.__globals__.os.system('x') }}", ChatTemplateError),
        ("{{ messages[7].content.x }}", ChatTemplateError),
    ],
)
def test_hostile_template_of_a_model_is_an_error(make, source, error):
    llama = make(source, "hostile")
    with pytest.raises(error):
        llama.create_chat_completion(HI, max_tokens=1)


def test_refusal_of_a_template_reaches_the_caller(make):
    llama = make("{{ raise_exception('no ' + messages[0].content) }}", "refusing")
    with pytest.raises(ChatTemplateError, match="no hi") as caught:
        llama.create_chat_completion(HI, max_tokens=1)
    assert caught.value.refusal == "no hi"


@pytest.mark.parametrize("source", [PLAIN, "{{ bos_token }}" + PLAIN, "<s>" + PLAIN])
def test_prompt_has_exactly_one_bos(make, source):
    llama = make(source, "bos")
    result = llama.create_chat_completion(HI, max_tokens=1)
    # the toy vocabulary has a token for each character, and one for the space that a text begins with
    n_tokens = result["usage"]["prompt_tokens"]
    seen = []
    llama.create_chat_completion(HI, max_tokens=1, logits_processor=lambda ids, _: seen.extend(ids.tolist()))
    assert seen.count(BOS) == 1
    assert (seen[0], len(seen)) == (BOS, n_tokens)


def test_variables_of_a_request_reach_the_template(make):
    source = "{{ messages[0].content }}{% if deep %} {{ deep.level }}{% endif %}{{ documents }}"
    llama = make(source, "variables")
    assert llama.chat_prompt(HI, chat_template_kwargs={"deep": {"level": 3}}) == "hi 3None"
    assert llama.chat_prompt(HI, documents=[]) == "hi[]"


def test_thinking_is_turned_off_by_a_variable(closing):
    path = data("target.gguf")
    with Model(path) as model, Llama(model, chat_template=vendored("Qwen-Qwen3-0.6B"), n_threads=1) as llama:
        assert llama.chat_prompt(HI).endswith("<|im_start|>assistant\n")
        off = llama.chat_prompt(HI, chat_template_kwargs={"enable_thinking": False})
        assert off.endswith("<|im_start|>assistant\n<think>\n\n</think>\n\n")
