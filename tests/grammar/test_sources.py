"""JSON Schemas from text, models, dataclasses and annotations."""

from __future__ import annotations

import dataclasses
import enum
import json
import sys
from decimal import Decimal
from typing import Annotated, Any, Literal, NewType

import pytest

from llamacy.errors import SchemaError
from llamacy.grammar import Grammar
from llamacy.grammar.sources import schema_of


def test_dict_and_bool_are_what_they_are() -> None:
    schema = {"type": "string"}
    assert schema_of(schema) is schema
    assert schema_of(True) is True
    assert schema_of(False) is False


def test_json_text_is_read_with_exact_numbers() -> None:
    assert schema_of('{"type": ["string", "null"], "maxLength": 3}') == {"type": ["string", "null"], "maxLength": 3}
    assert schema_of(" true ") is True
    found = schema_of('{"minimum": 0.12345678901234567890123, "maximum": 1e400}')
    assert found == {"minimum": Decimal("0.12345678901234567890123"), "maximum": Decimal("1e400")}
    grammar = Grammar.from_json_schema('{"type": "number", "minimum": 0.12345678901234567890123}')
    assert grammar.matches("0.12345678901234567890123")
    assert not grammar.matches("0.12345678901234567890122")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no JSON"),
        ("{", "no JSON"),
        ('{"a": 1,}', "no JSON"),
        ("[1]", r"must be an object or a boolean, not \[1\]"),
        ('"string"', "must be an object or a boolean"),
        ("null", "must be an object or a boolean"),
        ('{"minimum": NaN}', "no number NaN"),
        ('{"minimum": -Infinity}', "no number -Infinity"),
        ('{"type": "string", "type": "number"}', "says 'type' twice"),
        ("[" * 200_000, "too deep"),
    ],
    ids=lambda value: value[:20],
)
def test_wrong_json_text_is_refused(text: str, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        schema_of(text)


@pytest.mark.parametrize("source", [None, 5, 1.5, ["a"], ("a",), b"{}", object()])
def test_what_is_no_schema_is_refused(source: object) -> None:
    with pytest.raises(TypeError, match="a JSON Schema is made of a dict"):
        schema_of(source)
    with pytest.raises(TypeError, match="a JSON Schema is made of a dict"):
        Grammar.from_json_schema(source)


@dataclasses.dataclass
class Point:
    x: int
    y: int = 0


class Color(enum.Enum):
    RED = "red"
    GREEN = "green"


UserId = NewType("UserId", int)

ANNOTATIONS = [int, list[int], int | None, Literal["a", "b"], Annotated[int, "x"], Any, UserId, Color, Point]


@pytest.mark.parametrize("source", ANNOTATIONS, ids=str)
def test_type_without_pydantic_says_what_to_install(source: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pydantic", None)
    with pytest.raises(ImportError, match=r"llamacy\[pydantic\]"):
        schema_of(source)


def test_old_pydantic_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    class Old:
        VERSION = "1.10.2"

    monkeypatch.setitem(sys.modules, "pydantic", Old)  # type: ignore[arg-type]
    with pytest.raises(ImportError, match=r"pydantic 2, not 1\.10\.2"):
        schema_of(Point)


# with pydantic


@pytest.fixture
def pydantic() -> Any:
    return pytest.importorskip("pydantic", minversion="2")


@pytest.mark.parametrize("source", ANNOTATIONS, ids=str)
def test_annotation_has_the_schema_that_pydantic_gives_it(source: Any, pydantic: Any) -> None:
    assert schema_of(source) == pydantic.TypeAdapter(source).json_schema()


def test_model_and_adapter(pydantic: Any) -> None:
    class User(pydantic.BaseModel):  # type: ignore[misc, name-defined]
        name: str = pydantic.Field(min_length=1, max_length=5)
        tags: list[Literal["a", "b"]] = pydantic.Field(default_factory=list)
        at: int | None = None

    assert schema_of(User) == User.model_json_schema()
    assert schema_of(pydantic.TypeAdapter(list[User])) == pydantic.TypeAdapter(list[User]).json_schema()
    with pytest.raises(TypeError, match="not of an object of it; give User"):
        schema_of(User(name="x"))
    grammar = Grammar.from_json_schema(User)
    for user in (User(name="x"), User(name="é☃", tags=["a", "b"], at=-5)):
        text = json.dumps(user.model_dump(), ensure_ascii=False, separators=(",", ":"))
        assert grammar.matches(text)
        assert User.model_validate_json(text) == user
    assert not grammar.matches('{"name":""}')
    assert not grammar.matches('{"name":"x","tags":["c"]}')


def test_dataclass_and_typed_dict(pydantic: Any) -> None:
    from typing_extensions import TypedDict

    class Movie(TypedDict):
        title: str
        year: int

    for source in (Point, Movie):
        assert schema_of(source) == pydantic.TypeAdapter(source).json_schema()
    assert Grammar.from_json_schema(Point).matches('{"x":1,"y":2}')
    assert Grammar.from_json_schema(Movie).matches('{"title":"x","year":1}')
    assert not Grammar.from_json_schema(Movie).matches('{"title":"x"}')


def test_type_without_a_schema_is_refused(pydantic: Any) -> None:
    class Odd:
        pass

    with pytest.raises(SchemaError, match=r"pydantic has no JSON Schema for .*Odd"):
        schema_of(Odd)
    with pytest.raises(SchemaError, match="pydantic has no JSON Schema"):
        schema_of(type(lambda: 0))


def test_equal_schema_is_the_same_grammar_whoever_refers_to_its_parts() -> None:
    leaf = {"type": "string", "maxLength": 977}
    first = Grammar.from_json_schema({"properties": {"a": leaf, "b": leaf}})
    assert Grammar.from_json_schema({"properties": {"a": dict(leaf), "b": dict(leaf)}}) is first
    kept = {"properties": {"a": leaf, "b": leaf}}
    assert Grammar.from_json_schema(kept) is first
    leaf["maxLength"] = 978
    assert Grammar.from_json_schema(kept) is not first
    assert Grammar.from_json_schema(kept).matches(json.dumps({"a": "x" * 978}))
