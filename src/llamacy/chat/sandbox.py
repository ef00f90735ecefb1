"""The environment that chat templates run in: jinja2's sandbox with Hugging Face's additions, and counting.

Hugging Face's transformers defines the environment: trimmed blocks, `break` and `continue`, `{% generation %}`,
`raise_exception`, `strftime_now`, and a `tojson` that escapes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from types import BuiltinMethodType, GeneratorType, MethodType
from typing import Any

from jinja2 import nodes
from jinja2.exceptions import SecurityError, TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import BlockReference, Context, LoopContext, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace, pass_context

from llamacy.chat import filters
from llamacy.chat.budget import MAX_DEPTH, MAX_INT_BITS, current
from llamacy.chat.guards import guard
from llamacy.chat.text_functions import call_method, check_int, check_printf, format_function, is_allowed
from llamacy.errors import ChatTemplateLimitError

_MAX_DATE_FORMAT = 200
_CALL_STEPS = 32
_CALL_BYTES = 256
_FORMAT_BYTES = 4096
_MACRO_STEPS = 100
_DICT_ATTRIBUTES = frozenset(dir(dict))
_MISSING = object()
_PLAIN = (str, bytes, list, tuple, dict, range, int, float)


class Refusal(TemplateError):
    """What a template says with `raise_exception`."""


class _Generation(Extension):
    """`{% generation %}`, which marks what the assistant wrote: the body is rendered as it is."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> nodes.Node:
        """Read the tag."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body).set_lineno(line)


class _Namespace(Namespace):
    """`namespace()`, without private names and with a short text."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        self, args = args[0], args[1:]
        values = dict(*args, **kwargs)
        for name in values:
            _check_name(name)
        Namespace.__init__(self, values)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_name(name)
        Namespace.__setitem__(self, name, value)

    def __repr__(self) -> str:
        return "<Namespace>"


def _check_name(name: Any) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"a namespace of a chat template can't hold {name!r}: choose a name without underscore")


class _Dict:
    """`dict(...)` and `dict.fromkeys(...)`, without the type itself."""

    def __call__(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        if args and not isinstance(args[0], dict):
            pairs = list(args[0])
            current().hash_keys(pair[0] for pair in pairs if isinstance(pair, (list, tuple, str)) and len(pair))
            args = (pairs, *args[1:])
        return dict(*args, **kwargs)

    def fromkeys(self, keys: Iterable[Any], value: Any = None) -> dict[Any, Any]:
        """Return a dict with the same value for all keys."""
        keys = list(keys)
        current().hash_keys(keys)
        return dict.fromkeys(keys, value)


def _raise_exception(message: Any = "") -> None:
    raise Refusal(message if isinstance(message, str) else str(message))


def _strftime_now(date_format: str) -> str:
    if len(date_format) > _MAX_DATE_FORMAT or re.search(r"\d{3}", date_format):
        raise ChatTemplateLimitError("the chat template asks for a date in too long a format")
    return current().now().strftime(date_format)


@pass_context
def _finalize(context: Context, value: Any) -> Any:  # noqa: ARG001
    # that it takes the context keeps jinja2 from computing constants when it compiles
    if type(value) is not str:
        current().read(value)
    return value


class ChatEnvironment(ImmutableSandboxedEnvironment):
    """One environment for all templates: what belongs to one rendering is in its `Budget`."""

    intercepted_binops = frozenset(["+", "-", "*", "/", "//", "%", "**"])

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[_Generation, loopcontrols],
            optimized=False,
            finalize=_finalize,
            cache_size=0,
        )
        self.filters.clear()
        self.filters |= filters.filters()
        self.tests.clear()
        self.tests |= filters.tests()
        del self.globals["lipsum"]
        self.globals |= {
            "dict": _Dict(),
            "namespace": _Namespace,
            "raise_exception": _raise_exception,
            "strftime_now": _strftime_now,
        }

    def _generate(self, source: nodes.Template, *args: Any, **kwargs: Any) -> Any:
        return super()._generate(guard(source), *args, **kwargs)

    def concat(self, pieces: Iterable[str]) -> str:
        """Join what a template wrote."""
        pieces = pieces if isinstance(pieces, list) else list(pieces)
        # pointers cost, too
        current().allocate(sum(map(len, pieces)) + 8 * len(pieces))
        return "".join(pieces)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Return whether a template may read an attribute."""
        if isinstance(obj, _PLAIN):
            return is_allowed(obj, attr)
        if type(obj) is LoopContext:
            return not attr.startswith("_")
        return not isinstance(obj, GeneratorType) and super().is_safe_attribute(obj, attr, value)

    def getitem(self, obj: Any, argument: Any) -> Any:
        """Return `obj[argument]`."""
        if type(argument) is tuple:
            current().read(argument)
        return super().getitem(obj, argument)

    def getattr(self, obj: Any, attribute: str) -> Any:
        """Return `obj.attribute`, or `obj["attribute"]` where there is no such attribute."""
        # what templates read most, without the exceptions that jinja2 raises and catches on the way
        kind = type(obj)
        if kind is dict and attribute not in _DICT_ATTRIBUTES:
            return obj[attribute] if attribute in obj else self.undefined(obj=obj, name=attribute)
        if kind is _Namespace and not attribute.startswith("_"):
            value = getattr(obj, attribute, _MISSING)
            return self.undefined(obj=obj, name=attribute) if value is _MISSING else value
        return super().getattr(obj, attribute)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """Return what stands for `text.format` in a template, or None for anything else."""
        if (
            isinstance(value, (MethodType, BuiltinMethodType))
            and value.__name__ in ("format", "format_map")
            and isinstance(value.__self__, str)
        ):
            current().allocate(_FORMAT_BYTES)
            return format_function(self, value)
        return None

    def call(self, context: Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Call what a template calls."""
        budget = current()
        if isinstance(obj, (BuiltinMethodType, MethodType)) and isinstance(obj.__self__, _PLAIN):
            kwargs.pop("_loop_vars", None)
            kwargs.pop("_block_vars", None)
            return call_method(obj.__self__, obj, args, kwargs)
        budget.step(_CALL_STEPS + 4 * len(args) + 4 * len(kwargs))
        if not isinstance(obj, (Macro, LoopContext, BlockReference)):
            budget.allocate(_CALL_BYTES + 8 * len(args))
            for value in args:
                budget.read(value)
                budget.made(value)
            result = super().call(context, obj, *args, **kwargs)
            budget.made(result)
            return result
        budget.step(_MACRO_STEPS)
        budget.depth += 1
        if budget.depth > MAX_DEPTH:
            raise ChatTemplateLimitError(f"the macros and loops of the chat template call each other {MAX_DEPTH} deep")
        try:
            return super().call(context, obj, *args, **kwargs)
        finally:
            budget.depth -= 1

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:  # noqa: ARG002
        """Compute `left operator right`."""
        budget = current()
        if type(left) is str and type(right) is str and operator == "+":
            budget.allocate(left.__sizeof__() + right.__sizeof__())
            return left + right
        if isinstance(left, bytes) or isinstance(right, bytes):
            raise SecurityError("templates can't compute with bytes")
        if isinstance(left, str):
            if operator == "+" and isinstance(right, str):
                budget.allocate(left.__sizeof__() + right.__sizeof__())
            elif operator == "%":
                check_printf(left, right)
            elif operator == "*":
                _check_repeat(left.__sizeof__(), right)
        elif isinstance(left, int) and isinstance(right, int):
            budget.step(8)
            _check_integers(operator, left, right)
        elif operator == "*" and (isinstance(left, Sequence) or isinstance(right, Sequence)):
            left_is_data = isinstance(left, Sequence)
            data, n = (left, right) if left_is_data else (right, left)
            _check_repeat(data.__sizeof__(), n)
        elif isinstance(left, Sequence) and isinstance(right, Sequence):
            budget.allocate(8 * (len(left) + len(right)))
        else:
            budget.step(1)
        return self.binop_table[operator](left, right)


def _check_repeat(size: int, n: Any) -> None:
    if isinstance(n, int) and n > 0:
        current().allocate(size * n)


def _check_integers(operator: str, left: int, right: int) -> None:
    check_int(left)
    check_int(right)
    if operator == "**" and right > 0 and left.bit_length() * right > MAX_INT_BITS:
        raise ChatTemplateLimitError(f"the chat template computes a power of more than {MAX_INT_BITS} bits")


environment = ChatEnvironment()
