"""The classic chat formats: what each writes around messages."""

from __future__ import annotations

import json
from dataclasses import dataclass

_VICUNA_SYSTEM = (
    "A chat between a curious user and an artificial intelligence assistant. "
    "The assistant gives helpful, detailed, and polite answers to the user's questions."
)
_REFUSAL = "messages of this role have no place in this chat format: "


@dataclass(frozen=True)
class ClassicFormat:
    """One format, as texts before and after the content of a message.

    Attributes
    ----------
    user, assistant
        What stands before and after.
    system
        The same for system messages, or None when the format has none.
    generation
        Where the assistant begins to write, when that isn't what stands before its messages.
    default_system
        The system message of a chat without one.
    bos
        Whether the prompt begins with the BOS token.
    stop
        What ends an answer.
    source
        The Jinja source of a format that isn't made of such texts.
    """

    user: tuple[str, str] = ("", "")
    assistant: tuple[str, str] = ("", "")
    system: tuple[str, str] | None = None
    generation: str | None = None
    default_system: str | None = None
    bos: bool = True
    stop: tuple[str, ...] = ()
    source: str | None = None

    def jinja(self) -> str:
        """Return the Jinja source."""
        if self.source is not None:
            return self.source
        roles = {"user": self.user, "assistant": self.assistant}
        if self.system is not None:
            roles = {"system": self.system, **roles}
        branches = [
            f"{'if' if index == 0 else 'elif'} m.role == '{role}' %}}"
            f"{{{{ {json.dumps(before)} ~ m.content ~ {json.dumps(after)} }}}}"
            for index, (role, (before, after)) in enumerate(roles.items())
        ]
        chain = "{% ".join(["", *branches])
        first = "{{ bos_token }}" if self.bos else ""
        if self.default_system is not None and self.system is not None:
            text = json.dumps(self.system[0] + self.default_system + self.system[1])
            first += f"{{% if messages[0].role != 'system' %}}{{{{ {text} }}}}{{% endif %}}"
        generation = json.dumps(self.assistant[0] if self.generation is None else self.generation)
        return (
            f"{first}{{% for m in messages %}}{chain}{{% else %}}{_refuse()}{{% endif %}}{{% endfor %}}"
            f"{{% if add_generation_prompt %}}{{{{ {generation} }}}}{{% endif %}}"
        )


def _refuse() -> str:
    return f"{{{{ raise_exception({json.dumps(_REFUSAL)} ~ m.role) }}}}"


def _instructions(first: str, system: tuple[str, str], user: tuple[str, str], assistant: tuple[str, str]) -> str:
    """Return the source of a format that writes a system message into the first message of the user."""
    before, after = (json.dumps(text) for text in system)
    around = [json.dumps(text) for text in (*user, *assistant)]
    return (
        "{% set ns = namespace(system='') %}{% for m in messages %}"
        f"{{% if m.role == 'system' %}}{{% set ns.system = {before} ~ m.content ~ {after} %}}"
        f"{{% elif m.role == 'user' %}}{first}{{{{ {around[0]} ~ ns.system ~ m.content ~ {around[1]} }}}}"
        "{% set ns.system = '' %}"
        f"{{% elif m.role == 'assistant' %}}{{{{ {around[2]} ~ m.content ~ {around[3]} }}}}"
        f"{{% else %}}{_refuse()}{{% endif %}}{{% endfor %}}"
        "{% if ns.system %}{{ raise_exception('a system message needs a message of the user behind it') }}{% endif %}"
    )


_CHATML = {
    "system": ("<|im_start|>system\n", "<|im_end|>\n"),
    "user": ("<|im_start|>user\n", "<|im_end|>\n"),
    "assistant": ("<|im_start|>assistant\n", "<|im_end|>\n"),
}


def _headers(start: str, end: str, stop: str) -> ClassicFormat:
    around = {role: (f"{start}{role}{end}\n\n", stop) for role in ("system", "user", "assistant")}
    return ClassicFormat(**around, stop=(stop,))  # type: ignore[arg-type]


FORMATS: dict[str, ClassicFormat] = {
    "alpaca": ClassicFormat(
        system=("", "\n\n"),
        user=("### Instruction:\n", "\n\n"),
        assistant=("### Response:\n", "</s>"),
        stop=("### Instruction:",),
    ),
    "baichuan": ClassicFormat(
        system=("", ""), user=("<reserved_102>", ""), assistant=("<reserved_103>", ""), stop=("<reserved_102>",)
    ),
    "baichuan-2": ClassicFormat(
        system=("", ""), user=("<reserved_106>", ""), assistant=("<reserved_107>", ""), stop=("<reserved_106>",)
    ),
    "chatglm3": ClassicFormat(
        system=("<|system|>\n ", ""),
        user=("<|user|>\n ", ""),
        assistant=("<|assistant|>\n ", ""),
        generation="<|assistant|>",
        stop=("<|user|>", "<|observation|>"),
    ),
    "chatml": ClassicFormat(**_CHATML, stop=("<|im_end|>",)),  # type: ignore[arg-type]
    "gemma": ClassicFormat(
        user=("<start_of_turn>user\n", "<end_of_turn>\n"),
        assistant=("<start_of_turn>model\n", "<end_of_turn>\n"),
        stop=("<end_of_turn>",),
    ),
    "intel": ClassicFormat(
        system=("### System:\n", "\n"),
        user=("### User:\n", "\n"),
        assistant=("### Assistant:\n", "\n"),
        stop=("### User:",),
    ),
    "llama-2": ClassicFormat(
        source=_instructions(
            "{{ bos_token }}", ("<<SYS>>\n", "\n<</SYS>>\n\n"), ("[INST] ", " [/INST]"), (" ", " </s>")
        ),
        stop=("</s>",),
    ),
    "llama-3": _headers("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
    "llama-4": _headers("<|header_start|>", "<|header_end|>", "<|eot|>"),
    "mistral-instruct": ClassicFormat(
        source="{{ bos_token }}" + _instructions("", ("", "\n\n"), ("[INST] ", " [/INST]"), ("", "</s>")),
        stop=("</s>",),
    ),
    "mistrallite": ClassicFormat(
        system=("<|system|>", "</s>"),
        user=("<|prompter|>", "</s>"),
        assistant=("<|assistant|>", "</s>"),
        stop=("</s>", "<|prompter|>"),
    ),
    "oasst_llama": ClassicFormat(
        system=("[INST] <<SYS>>\n", "\n<</SYS>>\n\n"),
        user=("<|prompter|>", "</s>"),
        assistant=("<|assistant|>", "</s>"),
        stop=("</s>", "<|prompter|>"),
    ),
    "open-orca": ClassicFormat(
        system=("", "<|end_of_turn|>\n"),
        user=("User: ", "<|end_of_turn|>\n"),
        assistant=("Assistant: ", "<|end_of_turn|>\n"),
        stop=("<|end_of_turn|>",),
    ),
    "openbuddy": ClassicFormat(
        system=("", "\n"),
        user=("User: ", "\n"),
        assistant=("Assistant: ", "\n"),
        generation="Assistant:",
        stop=("\nUser:",),
    ),
    "openchat": ClassicFormat(
        system=("", "<|end_of_turn|>"),
        user=("GPT4 Correct User: ", "<|end_of_turn|>"),
        assistant=("GPT4 Correct Assistant: ", "<|end_of_turn|>"),
        generation="GPT4 Correct Assistant:",
        stop=("<|end_of_turn|>",),
    ),
    "phind": ClassicFormat(
        system=("### System Prompt\n", "\n\n"),
        user=("### User Message\n", "\n\n"),
        assistant=("### Assistant\n", "\n\n"),
        default_system="You are an intelligent programming assistant.",
        stop=("### User Message",),
    ),
    "pygmalion": ClassicFormat(
        system=("<|system|>", ""), user=("<|user|>", ""), assistant=("<|model|>", ""), stop=("<|user|>",)
    ),
    "qwen": ClassicFormat(
        **_CHATML,  # type: ignore[arg-type]
        default_system="You are a helpful assistant.",
        stop=("<|im_end|>", "<|endoftext|>"),
    ),
    "redpajama-incite": ClassicFormat(
        system=("", "\n"),
        user=("<human>: ", "\n"),
        assistant=("<bot>: ", "\n"),
        generation="<bot>:",
        stop=("<human>",),
    ),
    "saiga": ClassicFormat(
        system=("<s>system\n", "</s>"),
        user=("<s>user\n", "</s>"),
        assistant=("<s>bot\n", "</s>"),
        generation="<s>bot",
        bos=False,
        stop=("</s>",),
    ),
    "snoozy": ClassicFormat(
        system=("### Instruction:\n", "\n"),
        user=("### Prompt: ", "\n"),
        assistant=("### Response: ", "\n"),
        generation="### Response:",
        stop=("###",),
    ),
    "vicuna": ClassicFormat(
        system=("", " "),
        user=("USER: ", " "),
        assistant=("ASSISTANT: ", "</s>"),
        generation="ASSISTANT:",
        default_system=_VICUNA_SYSTEM,
        stop=("</s>", "USER:"),
    ),
    "zephyr": ClassicFormat(
        system=("<|system|>\n", "</s>\n"),
        user=("<|user|>\n", "</s>\n"),
        assistant=("<|assistant|>\n", "</s>\n"),
        stop=("</s>",),
    ),
}
