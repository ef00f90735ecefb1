"""The mirrors cover the headers completely, and a header that changes is noticed, by name."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from buildtools.c_headers import evaluate, parse_header
from buildtools.declarations import HeaderSyntaxError
from buildtools.errors import BuildError
from buildtools.headers import HEADERS, MIRRORS, OMITTED, HeaderMismatch, check, compare, coverage, main


@pytest.fixture
def copied(tree: Path, tmp_path: Path) -> Path:
    """A copy of the ten headers that a test may change."""
    for path in HEADERS.values():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(tree / path, tmp_path / path)
    return tmp_path


def _change(folder: Path, module: str, old: str, new: str) -> None:
    path = folder / HEADERS[module]
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1, f"{old!r} occurs {text.count(old)} times in {path.name}"
    path.write_text(text.replace(old, new), encoding="utf-8")


def _messages(folder: Path, mirrors: Path = MIRRORS) -> list[str]:
    return [str(difference) for difference in compare(folder, mirrors)]


def test_compare_of_the_vendored_tree_finds_no_difference(tree: Path) -> None:
    assert _messages(tree) == []


def test_coverage_counts_every_declaration_as_mirrored_or_omitted_with_a_reason(tree: Path) -> None:
    for row in coverage(tree):
        assert row.covered + row.omitted == row.total, row
        if row.kind in ("function", "struct", "enum", "typedef"):
            assert row.omitted == 0, row
    assert all(len(reason) > 10 for reasons in OMITTED.values() for reason in reasons.values())


def test_coverage_of_functions_equals_what_the_compiler_saw(
    tree: Path, tmp_path: Path, gnu_c: object, include_flags: list[str]
) -> None:
    """GCC lists every function it saw declared: an inventory that owes nothing to the parser under test."""
    source, listing = tmp_path / "all.c", tmp_path / "listing.txt"
    source.write_text('#include "llama.h"\n#include "mtmd.h"\n#include "mtmd-helper.h"\n')
    result = gnu_c(source, "-aux-info", str(listing), *include_flags)  # type: ignore[operator]
    assert result.returncode == 0, result.stderr
    seen = re.findall(r"/\* (\S+):\d+:\w+ \*/ extern .*?\b(\w+) \(", listing.read_text())
    for module, path in HEADERS.items():
        if module == "llama_ext":
            continue
        names = {name for file, name in seen if Path(file).name == Path(path).name}
        mirrored = set(parse_header(tree / path).functions)
        assert mirrored - names == ({"mtmd_get_memory_usage"} if module == "mtmd" else set())  # C++ only
        assert names - mirrored == set()


def test_coverage_of_llama_ext_equals_its_exported_declarations(tree: Path) -> None:
    text = (tree / HEADERS["llama_ext"]).read_text(encoding="utf-8")
    names = re.findall(r"^LLAMA_API [^(]*?(\w+)\s*\(", text, re.MULTILINE)
    assert sorted(names) == sorted(parse_header(tree / HEADERS["llama_ext"]).functions)


@pytest.mark.parametrize(
    ("module", "old", "new", "expected"),
    [
        (
            "llama",
            "llama_vocab_get_text(const struct llama_vocab * vocab, llama_token token);",
            "llama_vocab_get_text(const struct llama_vocab * vocab, int64_t token);",
            "llama.h: function llama_vocab_get_text: parameter 2 is `int64_t`, mirror has `llama_token`",
        ),
        (
            "llama",
            "LLAMA_API bool llama_memory_can_shift(llama_memory_t mem);",
            "LLAMA_API int llama_memory_can_shift(llama_memory_t mem);",
            "llama.h: function llama_memory_can_shift: returns `int`, mirror has `bool`",
        ),
        (
            "llama",
            "LLAMA_API bool llama_memory_can_shift(llama_memory_t mem);",
            "LLAMA_API bool llama_memory_can_shift(llama_memory_t mem, bool data);",
            "llama.h: function llama_memory_can_shift: has 2 parameters, mirror has 1 parameters",
        ),
        (
            "llama",
            "LLAMA_API bool llama_memory_can_shift(llama_memory_t mem);",
            "",
            "llama.h: function llama_memory_can_shift: not in header",
        ),
        (
            "llama",
            "LLAMA_API int64_t llama_time_us(void);",
            "LLAMA_API int64_t llama_time_us(void); LLAMA_API double llama_time_s(void);",
            "llama.h: function llama_time_s: missing in mirror",
        ),
        (
            "llama",
            "LLAMA_ATTENTION_TYPE_NON_CAUSAL  = 1,",
            "LLAMA_ATTENTION_TYPE_NON_CAUSAL  = 1, LLAMA_ATTENTION_TYPE_NEW = 1 << 1,",
            "llama.h: enum llama_attention_type: enumerator LLAMA_ATTENTION_TYPE_NEW missing in mirror",
        ),
        (
            "llama",
            "LLAMA_SPLIT_MODE_TENSOR = 3,",
            "",
            "llama.h: enum llama_split_mode: enumerator LLAMA_SPLIT_MODE_TENSOR not in header",
        ),
        (
            "llama",
            "bool load_mtp;        // whether to load MTP layers",
            "bool load_mtp; bool load_more;",
            "llama.h: struct llama_model_params: field load_more missing in mirror",
        ),
        (
            "llama",
            "int32_t main_gpu;",
            "int64_t main_gpu;",
            "llama.h: struct llama_model_params: field main_gpu is `int64_t`, mirror has `int32_t`",
        ),
        (
            "llama",
            "char key[128];",
            "char key[256];",
            "llama.h: struct llama_model_kv_override: field key is `char[256]`, mirror has `char[128]`",
        ),
        (
            "ggml",
            "#define GGML_MAX_SRC            10",
            "#define GGML_MAX_SRC 10\n#define GGML_MAX_NEW 3",
            "ggml.h: macro GGML_MAX_NEW: missing in mirror",
        ),
        (
            "llama",
            "typedef bool (*llama_progress_callback)(float progress, void * user_data);",
            "typedef bool (*llama_progress_callback)(double progress, void * user_data);",
            "llama_progress_callback: is `bool (*)(double, void *)`, mirror has `bool (*)(float, void *)`",
        ),
        (
            "llama",
            "typedef int32_t llama_token;",
            "typedef int64_t llama_token;",
            "llama.h: typedef llama_token: is `int64_t`, mirror has `int32_t`",
        ),
        (
            "llama",
            "#define LLAMA_TOKEN_NULL -1",
            "",
            "llama.h: macro LLAMA_TOKEN_NULL: not in header",
        ),
        (
            "llama_ext",
            "return model + context + compute;\n    }",
            "return model + context + compute;\n    }\n    size_t most() const { return model; }",
            "llama-ext.h: C++ llama_memory_breakdown_data::most: missing in mirror",
        ),
        (
            "llama_ext",
            "std::map<ggml_backend_buffer_type_t, llama_memory_breakdown_data>;",
            "std::map<ggml_backend_dev_t, llama_memory_breakdown_data>;",
            "llama_memory_breakdown: is `map<ggml_backend_dev_t, llama_memory_breakdown_data>`, mirror has",
        ),
        (
            "ggml_opt",
            "float beta2; // second AdamW momentum",
            "double beta2;",
            "ggml-opt.h: struct ggml_opt_optimizer_params: field adamw.beta2 is `double`, mirror has `float`",
        ),
    ],
)
def test_compare_of_a_changed_header_names_the_change(
    copied: Path, module: str, old: str, new: str, expected: str
) -> None:
    _change(copied, module, old, new)
    assert any(expected in message for message in _messages(copied))


def test_compare_of_reordered_fields_names_the_first(copied: Path) -> None:
    old = "int32_t n_p_eval;   // number of prompt tokens\n        int32_t n_eval;     // number of generated tokens"
    _change(copied, "llama", old, "int32_t n_eval; int32_t n_p_eval;")
    assert _messages(copied) == [
        "llama.h: struct llama_perf_context_data: field n_eval is number 5, mirror has n_p_eval there"
    ]


def test_compare_of_a_handle_of_another_type_names_it(copied: Path, tmp_path: Path) -> None:
    mirrors = tmp_path / "mirrors"
    shutil.copytree(MIRRORS, mirrors)
    handles = mirrors / "handles.pxd"
    text = handles.read_text(encoding="utf-8")
    handles.write_text(text.replace("ctypedef int32_t llama_pos", "ctypedef int64_t llama_pos"), encoding="utf-8")
    assert _messages(copied, mirrors) == [
        "llama.h: typedef llama_pos: is `int32_t`, mirror has `int64_t`",
        "handles.pxd: typedef llama_pos: is `int32_t`, mirror has `int64_t`",
    ]


def test_compare_of_an_omission_that_is_gone_asks_to_remove_it(copied: Path) -> None:
    _change(copied, "ggml", "#define GGML_UNUSED(x) (void)(x)", "")
    assert _messages(copied) == ["ggml.h: omitted GGML_UNUSED: not in header, remove it from OMITTED"]


def test_check_of_a_changed_header_raises_with_the_difference_and_what_to_do(copied: Path) -> None:
    _change(copied, "llama", "LLAMA_API int64_t llama_time_us(void);", "")
    with pytest.raises(HeaderMismatch, match="llama_time_us: not in header") as caught:
        check(copied)
    assert "vendor/PIN.toml" in str(caught.value)
    assert [difference.name for difference in caught.value.differences] == ["llama_time_us"]


def test_check_of_a_folder_without_headers_raises_build_error(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match=r"is no llama\.cpp tree"):
        check(tmp_path)


def test_check_of_an_unknown_construct_raises_with_file_and_line(copied: Path) -> None:
    _change(copied, "gguf", "    struct gguf_context;\n", "    struct gguf_context;\n    what is this;\n")
    with pytest.raises(BuildError, match=r"gguf\.h:\d+: "):
        check(copied)


def test_main_prints_the_table_and_returns_the_verdict(
    tree: Path, copied: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tree)]) == 0
    assert re.search(r"^llama\.h\s+255/255", capsys.readouterr().out, re.MULTILINE)
    _change(copied, "llama", "LLAMA_API int64_t llama_time_us(void);", "")
    assert main([str(copied)]) == 1
    assert "llama_time_us" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("64 / sizeof(int32_t)", 16),
        ("16*A", 64),
        ("(-1)", -1),
        ("0x10u", 16),
        ("1 << 3", 8),
        ("unknown + 1", None),
        ("sizeof(struct x)", None),
    ],
)
def test_evaluate_of_a_constant_expression_gives_its_value(expression: str, value: int | None) -> None:
    assert evaluate(expression, {"A": "4"}) == value


def test_evaluate_of_a_condition_follows_the_preprocessor() -> None:
    assert evaluate("defined(_WIN32) && !defined(__MINGW32__)", {}, undefined=0) == 0
    assert evaluate("defined(A) && (B == 0 || C)", {"A": "", "C": "1"}, undefined=0) == 1


def test_parse_header_of_an_unbalanced_declaration_raises_with_the_line(tmp_path: Path) -> None:
    header = tmp_path / "broken.h"
    header.write_text("int fine(void);\nint broken(int a;\n")
    with pytest.raises(HeaderSyntaxError, match=r"broken\.h:2"):
        parse_header(header)
