"""The page on chats keeps its word: its examples run, and it names what there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from llamacy.generate.chat import ChatArguments
from tests.helpers import REPO
from tests.helpers.process import run_python

PAGE = (REPO / "docs" / "chat.md").read_text(encoding="utf-8")


@pytest.mark.model
def test_examples_of_the_page_run(smollm2_path: Path) -> None:
    code = "".join(re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))
    assert code.count('pull("smollm2-135m")') == 1
    code = code.replace('pull("smollm2-135m")', f"{str(smollm2_path)!r}, n_threads=1, n_threads_batch=1")
    whole, streamed, call, planet = run_python(code).stdout.splitlines()
    assert whole == streamed
    assert call.startswith("{'name': 'get_weather', 'arguments': '{\"city\": \"Rome\"")
    assert planet.startswith('{"planet": "Mars"')


def test_page_names_every_argument() -> None:
    for name in ChatArguments.__dataclass_fields__:
        assert re.search(rf"\b{name}\b", PAGE), name


def test_links_and_examples_exist() -> None:
    for link in re.findall(r"\]\(([^)#]+)\)", PAGE):
        assert (REPO / "docs" / link).exists(), link
    for name in re.findall(r"`(chat_\w+\.py)`", PAGE):
        assert (REPO / "examples" / name).is_file(), name
