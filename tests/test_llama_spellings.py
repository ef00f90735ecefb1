"""Other spellings of what a request takes, and what may be given by position, in every method that takes it."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

import pytest

from llamacy import Llama
from llamacy.generate.arguments import _SPELLINGS, CHAT_SPELLINGS
from llamacy.generate.options import _ALIASES
from tests.helpers import data, toy_tokens

MESSAGES = [{"role": "user", "content": "the cat"}]
# a value that is not the default, and another one, for each
VALUES: dict[str, tuple[Any, Any]] = {
    "temp": (3.0, 0.5),
    "typical": (0.5, 0.9),
    "typ_p": (0.5, 0.9),
    "mirostat": (2, 1),
    "repeat_last_n": (3, 9),
    "present_penalty": (1.5, 0.5),
    "dry_sequence_breakers": (["a"], ["b"]),
    "active_loras": ({}, []),
    "max_completion_tokens": (3, 4),
    "assistant_prefill": (True, False),
}


@pytest.fixture(scope="module")
def llama() -> Any:
    with Llama(data("llama.gguf"), n_ctx=128, n_threads=1, n_threads_batch=1, chat_format="chatml") as made:
        yield made


def texts(result: Any) -> list[str]:
    if isinstance(result, dict):
        result = [result]
    return [str(c.get("text", c.get("message", c.get("delta")))) for one in result for c in one["choices"]]


async def collected(awaitable: Any) -> Any:
    return [chunk async for chunk in await awaitable]


METHODS: dict[str, Callable[..., Any]] = {
    "call": lambda llama, **o: texts(llama("the cat", **o)),
    "completion": lambda llama, **o: texts(llama.create_completion("the cat", **o)),
    "completion stream": lambda llama, **o: texts(llama.create_completion("the cat", stream=True, **o)),
    "async": lambda llama, **o: texts(asyncio.run(llama.acreate_completion("the cat", **o))),
    "async stream": lambda llama, **o: texts(
        asyncio.run(collected(llama.acreate_completion("the cat", stream=True, **o)))
    ),
    "generate": lambda llama, **o: list(llama.generate(toy_tokens("the cat"), **o)),
}
CHATS: dict[str, Callable[..., Any]] = {
    "chat": lambda llama, **o: texts(llama.create_chat_completion(MESSAGES, **o)),
    "chat stream": lambda llama, **o: texts(llama.create_chat_completion(MESSAGES, stream=True, **o)),
    "async chat": lambda llama, **o: texts(asyncio.run(llama.acreate_chat_completion(MESSAGES, **o))),
    "async chat stream": lambda llama, **o: texts(
        asyncio.run(collected(llama.acreate_chat_completion(MESSAGES, stream=True, **o)))
    ),
    "chat prompt": lambda llama, **o: llama.chat_prompt(MESSAGES, **o),
}
GIVEN = [
    (method, old, new)
    for names, methods in (({**_ALIASES, **_SPELLINGS}, {**METHODS, **CHATS}), (CHAT_SPELLINGS, CHATS))
    for old, new in names.items()
    for method in methods
]


def call(llama: Llama, method: str, **options: Any) -> Any:
    # penalties and DRY without effect would hide what a window, or a breaker, changes
    given: dict[str, Any] = {"seed": 7}
    if not {"max_completion_tokens", "max_tokens"} & {*options}:
        given["max_tokens"] = 6
    if "mirostat" not in options and "mirostat_mode" not in options:
        given.update(repeat_penalty=1.5, dry_multiplier=0.8)
    return {**METHODS, **CHATS}[method](llama, **{**given, **options})


def test_every_spelling_has_values() -> None:
    assert {*VALUES} == {*_ALIASES, *_SPELLINGS, *CHAT_SPELLINGS}


@pytest.mark.parametrize(("method", "old", "new"), GIVEN)
def test_spelling_means_what_the_name_does(llama: Llama, method: str, old: str, new: str) -> None:
    value, other = VALUES[old]
    expected = call(llama, method, **{new: value})
    assert call(llama, method, **{old: value}) == expected
    # None stands for what was not given
    assert call(llama, method, **{old: value, new: None}) == expected
    with pytest.raises(TypeError, match=f"{new} is given twice"):
        call(llama, method, **{old: value, new: other})


@pytest.mark.parametrize("method", [*METHODS, "chat", "chat stream", "async chat", "async chat stream"])
def test_temp_of_0_takes_the_likeliest_tokens(llama: Llama, method: str) -> None:
    ask = {**METHODS, **CHATS}[method]
    greedy = ask(llama, max_tokens=12, temperature=0, seed=1)
    assert all(ask(llama, max_tokens=12, temp=0, seed=seed) == greedy for seed in range(3))
    assert any(ask(llama, max_tokens=12, temp=5.0, seed=seed) != greedy for seed in range(3))


def test_default_temperatures_are_those_that_the_docstrings_say(llama: Llama) -> None:
    for seed in range(5):
        options: dict[str, Any] = {"max_tokens": 12, "seed": seed, "min_p": 0.0, "top_p": 1.0}
        assert texts(llama("the cat", **options)) == texts(llama("the cat", temperature=0.8, **options))
        chat = llama.create_chat_completion
        assert texts(chat(MESSAGES, **options)) == texts(chat(MESSAGES, temperature=0.2, **options))


# what is given by position: llama-cpp-python's order is another one


def test_what_has_another_order_there_is_not_given_by_position() -> None:
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    expected = {
        "__call__": ["self", "prompt", "max_tokens"],
        "create_completion": ["self", "prompt", "max_tokens"],
        "acreate_completion": ["self", "prompt", "max_tokens"],
        "create_chat_completion": ["self", "messages"],
        "acreate_chat_completion": ["self", "messages"],
        "create_chat_completion_openai_v1": ["self", "messages"],
        "chat_prompt": ["self", "messages"],
        "generate": ["self", "tokens"],
        "detokenize": ["self", "tokens"],
        "embed": ["self", "input"],
        "create_embedding": ["self", "input", "model"],
    }
    for name, names in expected.items():
        parameters = inspect.signature(getattr(Llama, name)).parameters.values()
        assert [one.name for one in parameters if one.kind in kinds] == names


@pytest.mark.parametrize("further", [(None, 5), (5, 0.2), (5, 0.2, 40), (" the end", 5)])
def test_more_by_position_is_refused(llama: Llama, further: tuple[Any, ...]) -> None:
    ask: Any
    for ask in (llama, llama.create_completion, llama.acreate_completion):
        with pytest.raises(TypeError, match="positional arguments"):
            ask("Once", *further)
    for ask in (llama.create_chat_completion, llama.acreate_chat_completion):
        with pytest.raises(TypeError, match="positional arguments"):
            ask(MESSAGES, *further)


@pytest.mark.parametrize("suffix", [" the end", "", b" the end"])
def test_suffix_by_position_is_told_its_name(llama: Llama, suffix: Any) -> None:
    for ask in (llama, llama.create_completion, lambda *given: asyncio.run(llama.acreate_completion(*given))):
        with pytest.raises(TypeError) as raised:
            ask("Once", suffix)  # type: ignore[operator]
        assert f"not {type(suffix).__name__} {suffix!r};" in str(raised.value)
        assert "by name, suffix=…" in str(raised.value)


def test_max_tokens_by_position_are_counted(llama: Llama) -> None:
    for n in (1, 3):
        assert llama("the cat", n, ignore_eos=True)["usage"]["completion_tokens"] == n
        made = asyncio.run(llama.acreate_completion("the cat", n, ignore_eos=True))
        assert made["usage"]["completion_tokens"] == n
