"""The compiler agrees with what Cython reads in the mirrors.

Cython itself parses the mirrors here, and a C++ file states what it understood: the exact type of every
function, field and typedef, every enumerator and constant. Structured bindings and ``-Wswitch`` make the
compiler complain about a field or an enumerator that the mirror lacks. None of this uses the parser in
``buildtools``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from Cython.Compiler import Errors
from Cython.Compiler.Main import Context
from Cython.Compiler.Options import CompilationOptions, default_options

from buildtools.headers import HEADERS
from buildtools.paths import ROOT

Check = Callable[..., "CompletedProcess[str]"]

# Structs that structured bindings cannot take apart, because members of an anonymous union share their place.
UNION = {"llama_model_kv_override"}
# A second name for a value: a switch may name only one of the two.
ALIASES = {
    "LLAMA_ROPE_SCALING_TYPE_MAX_VALUE": "LLAMA_ROPE_SCALING_TYPE_LONGROPE",
    "GGML_PREC_DEFAULT": "GGML_PREC_UNDEFINED",
}
# native code is known to throw from these, on input that Python can give
THROWING_SAMPLE = {
    "llama": {
        "llama_decode",
        "llama_encode",
        "llama_process",
        "llama_set_sampler",
        "llama_init_from_model",
        "llama_vocab_get_text",
        "llama_vocab_get_score",
        "llama_vocab_get_attr",
        "llama_token_to_piece",
        "llama_tokenize",
        "llama_detokenize",
        "llama_sampler_accept",
        "llama_sampler_apply",
        "llama_sampler_sample",
        "llama_sampler_clone",
        "llama_sampler_copy",
        "llama_sampler_init_grammar",
        "llama_sampler_init_grammar_lazy_patterns",
        "llama_state_seq_set_data_ext",
        "llama_model_save_to_file",
    },
}


def _cython_scopes() -> dict[str, Any]:
    options = CompilationOptions(default_options, include_path=[str(ROOT / "src")], cplus=True, language_level=3)
    Errors.init_thread()
    context = Context.from_options(options)
    return {module: context.find_module(f"llamacy.native.{module}", need_pxd=True) for module in ("handles", *HEADERS)}


@pytest.fixture(scope="module")
def scopes() -> dict[str, Any]:
    """What Cython makes of each mirror: its module scope."""
    return _cython_scopes()


def _own_entries(scope: Any) -> Iterator[Any]:
    for entry in scope.entries.values():
        # every module also has __name__ and its like, which are Python objects
        if entry.scope is scope and not entry.type.is_pyobject:
            yield entry


def _same(what: str, type_: Any) -> str:
    return f"static_assert(std::is_same_v<{what}, {type_.declaration_code('')}>);"


def _statements(scope: Any) -> Iterator[str]:
    """Yield C++ that compiles only when the headers declare what the mirror says."""
    for number, entry in enumerate(_own_entries(scope)):
        type_ = entry.type
        if entry.is_cfunction:
            pointer = type_.declaration_code("(*)")
            yield f"static_assert(std::is_same_v<decltype(&::{entry.cname}), {pointer}>);"
        elif entry.is_type and type_.is_struct_or_union:
            yield from _struct(number, type_)
        elif entry.is_type and type_.is_enum:
            yield from _enum(number, type_)
        elif entry.is_type and type_.is_typedef:
            yield _same(type_.declaration_code(""), type_.typedef_base_type)
        elif entry.is_variable and type_.is_ptr:
            yield f"static const char * const constant_{number} = {entry.cname};"
        elif entry.is_variable:
            # braces reject a value that the type of the mirror cannot hold
            yield f"static constexpr {type_.declaration_code(f'constant_{number}')}{{{entry.cname}}};"


def _struct(number: int, type_: Any) -> Iterator[str]:
    fields = [] if type_.scope is None else list(type_.scope.var_entries)
    if not fields:
        return
    name = type_.declaration_code("").strip()
    tag = f"struct_{number}"
    yield f"using {tag} = {name};"
    for field in fields:
        yield _same(f"decltype({tag}::{field.cname})", field.type)
    if type_.name not in UNION:
        bindings = ", ".join(f"f{index}" for index in range(len(fields)))
        yield f"inline void take_{number}({tag} & value) {{ auto & [{bindings}] = value; (void) f0; }}"


def _enum(number: int, type_: Any) -> Iterator[str]:
    name = type_.declaration_code("").strip()
    cases = " ".join(f"case {value}:" for value in type_.values if value not in ALIASES)
    yield f"inline int switch_{number}({name} value) {{ switch (value) {{ {cases} return 1; }} return 0; }}"
    yield from (f"static_assert({value} == {ALIASES[value]});" for value in type_.values if value in ALIASES)


def _write(path: Path, module: str, statements: list[str]) -> Path:
    header = Path(HEADERS[module]).name
    lines = ["#include <map>", "#include <type_traits>", f'#include "{header}"', *statements]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize("module", HEADERS)
def test_mirror_states_what_the_compiler_finds_in_the_header(
    module: str, scopes: dict[str, Any], tmp_path: Path, check_cxx: Check, include_flags: list[str]
) -> None:
    statements = list(_statements(scopes[module]))
    assert len(statements) > 10
    source = _write(tmp_path / f"{module}.cpp", module, statements)
    result = check_cxx(source, "-Werror=switch", *include_flags)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        (
            "LLAMA_SPLIT_MODE_TENSOR = 3,",
            "LLAMA_SPLIT_MODE_TENSOR = 3, LLAMA_SPLIT_MODE_NEW = 4,",
            "MODE_NEW",
        ),
        ("bool load_mtp; ", "bool load_mtp; bool load_more; ", "structured binding|decomposes"),
        ("int64_t llama_time_us(void)", "double llama_time_us(void)", "static assertion|static_assert"),
        ("int32_t main_gpu;", "int64_t main_gpu;", "static assertion|static_assert"),
        ("#define LLAMA_TOKEN_NULL -1", "#define LLAMA_TOKEN_NULL -1LL*(1LL<<40)", "narrowing"),
    ],
)
def test_mirror_against_a_changed_header_does_not_compile(
    old: str,
    new: str,
    complaint: str,
    scopes: dict[str, Any],
    tree: Path,
    tmp_path: Path,
    check_cxx: Check,
    include_flags: list[str],
) -> None:
    """The check above can fail at all: each kind of statement rejects the change that it is there for."""
    text = (tree / HEADERS["llama"]).read_text(encoding="utf-8")
    assert text.count(old) == 1
    (tmp_path / "llama.h").write_text(text.replace(old, new), encoding="utf-8")
    source = _write(tmp_path / "llama.cpp", "llama", list(_statements(scopes["llama"])))
    result = check_cxx(source, "-Werror=switch", f"-I{tmp_path}", *include_flags)
    assert result.returncode != 0
    assert re.search(complaint, result.stderr)


def test_functions_known_to_throw_are_declared_except_plus(scopes: dict[str, Any]) -> None:
    for module, names in THROWING_SAMPLE.items():
        entries = scopes[module].entries
        bare = {name for name in names if entries[name].type.exception_check != "+"}
        assert bare == set()


def test_every_declaration_may_be_used_without_the_gil(scopes: dict[str, Any]) -> None:
    for module in HEADERS:
        held = [entry.name for entry in _own_entries(scopes[module]) if entry.is_cfunction and not entry.type.nogil]
        assert held == [], module
