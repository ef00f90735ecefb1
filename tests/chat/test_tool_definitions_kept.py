"""Tools that one request after the other has: what is kept of them, and that nobody can change it."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from llamacy.chat.plain import Plain
from llamacy.chat.template import ChatTemplate
from llamacy.chat.tool_definitions import kept_tools, normalise_tools


def tools(name: str = "f", **properties: Any) -> list[dict[str, Any]]:
    return [{"type": "function", "function": {"name": name, "parameters": {"properties": properties}}}]


def test_kept_tools_are_the_normalised_ones() -> None:
    given = tools(a={"type": "string"}, b={"enum": [1, 2.5, None, True, "é"]})
    before = copy.deepcopy(given)
    kept = kept_tools(given)
    assert list(kept) == normalise_tools(given)
    assert kept_tools(copy.deepcopy(given)) == kept
    assert given == before
    assert list(kept_tools(None)) == []
    assert list(kept_tools([])) == []


def test_changed_tools_are_other_tools() -> None:
    given = tools(a={"type": "string"})
    first = kept_tools(given)
    given[0]["function"]["parameters"]["properties"]["a"]["type"] = "integer"
    second = kept_tools(given)
    assert list(second) == normalise_tools(given)
    assert first[0]["function"]["parameters"]["properties"]["a"] == {"type": "string"}
    assert first.data != second.data
    # equal for Python, and not for JSON
    data = {kept_tools(tools(a={"const": value})).data for value in (1, 1.0, True)}
    assert len(data) == 3


def test_objects_are_looked_at_each_time() -> None:
    class Tool:
        name = "f"

        def model_dump(self) -> dict[str, Any]:
            return {"name": self.name, "parameters": {}}

    tool = Tool()
    assert kept_tools([tool])[0]["function"]["name"] == "f"
    tool.name = "g"
    assert kept_tools([tool])[0]["function"]["name"] == "g"


def test_wrong_tools_are_refused_each_time() -> None:
    for _ in range(2):
        with pytest.raises(ValueError, match="same name"):
            kept_tools([*tools(), *tools()])


def test_template_changes_a_copy() -> None:
    template = ChatTemplate(
        "{% set _ = tools.append(1) %}{% set _ = tools[0].function.parameters.properties.a.enum.append(3) %}"
        "{{ tools|length }}{{ tools[0].function.parameters.properties.a.enum }}"
    )
    given = tools(a={"enum": [1, 2]})
    kept = kept_tools(given)
    rendered = [template.render([{"role": "user", "content": ""}], tools=kept) for _ in range(3)]
    assert rendered == ["2[1, 2, 3]"] * 3
    assert list(kept) == normalise_tools(given)


def test_copy_counts_as_one_that_is_made_anew() -> None:
    kept = kept_tools(tools(a={"type": "string"}))
    counted, copied = Plain(), Plain()
    counted.copy(list(kept), "tools")
    assert kept.copied(copied) == list(kept)
    assert (copied.n_items, copied.n_bytes) == (counted.n_items, counted.n_bytes)


def test_few_tools_are_kept() -> None:
    first = kept_tools(tools("first"))
    for number in range(20):
        kept_tools(tools(f"f{number}"))
    assert kept_tools(tools("first")) is first
    for number in range(40):
        kept_tools(tools(f"f{number}"))
    assert kept_tools(tools("first")) is not first
