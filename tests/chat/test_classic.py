"""The chat formats by name, against llama-cpp-python and, where that goes wrong, what the models' makers say."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from llamacy.chat import classic
from llamacy.chat.classic import chat_format_names, classic_template, register_chat_format
from llamacy.errors import ChatTemplateError
from tests.data.make_classic_goldens import CONVERSATIONS, SYSTEM, TURNS
from tests.helpers import data

GOLDENS: dict[str, dict[str, str]] = json.loads(data("classic-goldens.json").read_text(encoding="utf-8"))["formats"]

NAMES = [
    *(
        "llama-2",
        "llama-3",
        "llama-4",
        "alpaca",
        "qwen",
        "vicuna",
        "oasst_llama",
        "baichuan-2",
        "baichuan",
        "openbuddy",
    ),
    *("redpajama-incite", "snoozy", "phind", "intel", "open-orca", "mistrallite", "zephyr", "pygmalion", "chatml"),
    *("mistral-instruct", "chatglm3", "openchat", "saiga", "gemma"),
]

#: Where llama-cpp-python 0.3.36 departs from the format, and what it should be.
FAULTS: dict[str, tuple[str, dict[str, str]]] = {
    "llama-2": (
        "no empty line behind the system message, spaces misplaced",
        {
            "system": "<s>[INST] <<SYS>>\nBe brief.\n<</SYS>>\n\nHello [/INST] Hi! </s><s>[INST] How are you? [/INST]",
            "turns": "<s>[INST] Hello [/INST] Hi! </s><s>[INST] How are you? [/INST]",
            "user": "<s>[INST] Hello [/INST]",
        },
    ),
    "alpaca": (
        "contents on the line of their heading, and no place where the answer begins",
        {
            "system": "Be brief.\n\n### Instruction:\nHello\n\n### Response:\nHi!</s>"
            "### Instruction:\nHow are you?\n\n### Response:\n",
            "user": "### Instruction:\nHello\n\n### Response:\n",
        },
    ),
    "chatml": (
        "an empty system message where there is none",
        {"user": "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"},
    ),
    "chatglm3": (
        "an empty system message where there is none, and no space before one",
        {
            "system": "<|system|>\n Be brief.<|user|>\n Hello<|assistant|>\n Hi!<|user|>\n How are you?<|assistant|>",
            "user": "<|user|>\n Hello<|assistant|>",
        },
    ),
    "intel": (
        "the placeholder of the system message is printed, and headings have two colons",
        {
            "system": "### System:\nBe brief.\n### User:\nHello\n### Assistant:\nHi!\n### User:\nHow are you?\n"
            "### Assistant:\n",
            "user": "### User:\nHello\n### Assistant:\n",
        },
    ),
    "mistral-instruct": (
        "the system message is left out",
        {"system": "[INST] Be brief.\n\nHello [/INST]Hi!</s>[INST] How are you? [/INST]"},
    ),
    "mistrallite": (
        "spaces and line breaks that the model card doesn't have",
        {"user": "<|prompter|>Hello</s><|assistant|>"},
    ),
    "oasst_llama": ("an empty system message where there is none", {"user": "<|prompter|>Hello</s><|assistant|>"}),
    "open-orca": (
        "what the user says is left out",
        {
            "system": "Be brief.<|end_of_turn|>\nUser: Hello<|end_of_turn|>\nAssistant: Hi!<|end_of_turn|>\n"
            "User: How are you?<|end_of_turn|>\nAssistant: "
        },
    ),
    "openbuddy": (
        "the system message is left out for one of its own",
        {"system": "Be brief.\nUser: Hello\nAssistant: Hi!\nUser: How are you?\nAssistant:"},
    ),
    "openchat": (
        "line breaks, and ends of turns twice",
        {
            "turns": "GPT4 Correct User: Hello<|end_of_turn|>GPT4 Correct Assistant: Hi!<|end_of_turn|>"
            "GPT4 Correct User: How are you?<|end_of_turn|>GPT4 Correct Assistant:"
        },
    ),
    "phind": (
        "contents on the line of their heading; the system message is left out",
        {
            "system": "### System Prompt\nBe brief.\n\n### User Message\nHello\n\n### Assistant\nHi!\n\n"
            "### User Message\nHow are you?\n\n### Assistant\n",
            "user": "### System Prompt\nYou are an intelligent programming assistant.\n\n### User Message\nHello\n\n"
            "### Assistant\n",
        },
    ),
    "pygmalion": (
        "line breaks that the model card doesn't have",
        {"system": "<|system|>Be brief.<|user|>Hello<|model|>Hi!<|user|>How are you?<|model|>"},
    ),
    "redpajama-incite": ("an empty line in front", {"user": "<human>: Hello\n<bot>:"}),
    "saiga": (
        "what the assistant said is left out",
        {"turns": "<s>user\nHello</s><s>bot\nHi!</s><s>user\nHow are you?</s><s>bot"},
    ),
    "snoozy": (
        "no heading for the system message",
        {
            "system": "### Instruction:\nBe brief.\n### Prompt: Hello\n### Response: Hi!\n"
            "### Prompt: How are you?\n### Response:"
        },
    ),
    "vicuna": (
        "the system message is left out for the usual one",
        {"system": "Be brief. USER: Hello ASSISTANT: Hi!</s>USER: How are you? ASSISTANT:"},
    ),
    "zephyr": (
        "two line breaks behind headings, an empty system message where there is none",
        {
            "system": "<|system|>\nBe brief.</s>\n<|user|>\nHello</s>\n<|assistant|>\nHi!</s>\n<|user|>\n"
            "How are you?</s>\n"
            "<|assistant|>\n",
            "user": "<|user|>\nHello</s>\n<|assistant|>\n",
        },
    ),
}


def render(name: str, conversation: str) -> str:
    bos_token = "<s>" if name == "llama-2" else ""
    return classic_template(name, bos_token=bos_token).render(CONVERSATIONS[conversation])


def test_all_formats_are_there() -> None:
    assert set(NAMES) <= set(chat_format_names())
    assert len(NAMES) == 24
    assert set(GOLDENS) == set(NAMES) - {"llama-4"}


@pytest.mark.parametrize("name", sorted(GOLDENS))
def test_format_is_that_of_llama_cpp_python_or_its_fault_is_known(name: str) -> None:
    for conversation, prompt in GOLDENS[name].items():
        if name == "gemma" and conversation == "system":
            continue
        expected = FAULTS.get(name, ("", {}))[1].get(conversation)
        if expected is not None:
            assert prompt != expected, "no fault any more: remove it"
            assert render(name, conversation) == expected
        elif name not in FAULTS:
            assert render(name, conversation) == prompt


def test_llama_4() -> None:
    # as Meta's prompt format page for Llama 4 shows it
    assert classic_template("llama-4", bos_token="<|begin_of_text|>").render([SYSTEM, *TURNS[:1]]) == (
        "<|begin_of_text|><|header_start|>system<|header_end|>\n\nBe brief.<|eot|>"
        "<|header_start|>user<|header_end|>\n\nHello<|eot|><|header_start|>assistant<|header_end|>\n\n"
    )


@pytest.mark.parametrize("name", NAMES)
def test_every_format_has_a_bos_at_most_once_at_the_start_a_stop_and_refuses_other_roles(name: str) -> None:
    template = classic_template(name, bos_token="<BOS>", eos_token="<EOS>")
    prompt = template.render(TURNS[:1])
    assert prompt.count("<BOS>") == (0 if name == "saiga" else 1)
    assert prompt.startswith("<s>" if name == "saiga" else "<BOS>")
    assert template.stop
    assert template.name == name
    assert template.render(TURNS[:2], continue_final_message=True).endswith("Hi!")
    with pytest.raises(ChatTemplateError, match="tool"):
        template.render([*TURNS, {"role": "tool", "content": "1"}])


@pytest.mark.parametrize("name", ["llama-2", "mistral-instruct"])
def test_system_message_at_the_end_is_refused_where_it_would_be_lost(name: str) -> None:
    with pytest.raises(ChatTemplateError, match="system"):
        classic_template(name).render([*TURNS, SYSTEM])


def test_gemma_takes_no_system_message() -> None:
    with pytest.raises(ChatTemplateError, match="system"):
        classic_template("gemma").render([SYSTEM, *TURNS])


def test_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(ValueError, match="'llama-3'"):
        classic_template("llama3")
    with pytest.raises(ValueError, match="zephyr"):
        classic_template("?")
    with pytest.raises(TypeError):
        classic_template(3)  # type: ignore[arg-type]


def test_format_can_be_added_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classic, "_formats", dict(classic._formats))
    register_chat_format("mine", "{{ bos_token }}{{ messages[0].content }}>", ["\n"])
    template = classic_template("mine", bos_token="^")
    assert template.render(TURNS[:1]) == "^Hello>"
    assert template.stop == ("\n",)
    assert "mine" in chat_format_names()
    for name in ("mine", "chatml"):
        with pytest.raises(ValueError, match="already"):
            register_chat_format(name, "x")
    with pytest.raises(ChatTemplateError):
        register_chat_format("broken", "{% if %}")
    for wrong in ("x", [""], [3]):
        with pytest.raises(TypeError, match="stop"):
            register_chat_format("other", "x", wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        register_chat_format("", "x")
    assert "broken" not in chat_format_names()
    assert "other" not in chat_format_names()


def test_formats_are_used_by_many_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classic, "_formats", dict(classic._formats))

    def work(number: int) -> str:
        register_chat_format(f"own-{number}", f"{number}:{{{{ messages[0].content }}}}")
        return classic_template(f"own-{number}").render(TURNS[:1])

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(work, range(32))) == [f"{number}:Hello" for number in range(32)]
