"""The page on tool calls says what there is."""

from __future__ import annotations

import re

from llamacy.chat.output import format_names
from tests.helpers import REPO

PAGE = (REPO / "docs" / "tool-calls.md").read_text(encoding="utf-8")


def test_page_lists_every_format() -> None:
    rows = [row.split(" | ")[0] for row in re.findall(r"^\| `.* \| .* \| .*$", PAGE, re.MULTILINE)]
    listed = [name for row in rows for name in re.findall(r"`([^`(]+)`", row)]
    assert sorted(listed) == sorted(format_names())


def test_example_of_the_page_runs() -> None:
    (code,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    printed: list[str] = []
    exec(compile(code, "tool-calls.md", "exec"), {"print": lambda *values: printed.append(" ".join(map(str, values)))})
    assert printed[0] == "hermes"
    assert printed[1] == "[ReasoningDelta(text='Rain')]"
    assert "ToolCallStart(index=0" in printed[4]
    assert 'ToolArgumentsDelta(index=0, text=\'{"city": "Ro\')' in printed[4]
    assert printed[-1] == 'Well. get_weather {"city": "Rome"}'
