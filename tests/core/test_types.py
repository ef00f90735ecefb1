"""The enumerations of llamacy.types against the C headers, as a C compiler sees them."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sysconfig
from enum import IntEnum, IntFlag
from pathlib import Path

import pytest

from llamacy import types
from tests.helpers import vendor_dir

# Python enumeration -> header, C enumeration, prefixes of its enumerators, enumerators that are no values of it
ENUMS = {
    types.LoadMode: ("llama.h", "llama_load_mode", ["LLAMA_LOAD_MODE_"], []),
    types.LazyMode: ("llama.h", "llama_lazy_mode", ["LLAMA_LAZY_MODE_"], []),
    types.SplitMode: ("llama.h", "llama_split_mode", ["LLAMA_SPLIT_MODE_"], []),
    types.ContextType: ("llama.h", "llama_context_type", ["LLAMA_CONTEXT_TYPE_"], []),
    types.RopeType: ("llama.h", "llama_rope_type", ["LLAMA_ROPE_TYPE_"], []),
    types.RopeScalingType: (
        "llama.h", "llama_rope_scaling_type", ["LLAMA_ROPE_SCALING_TYPE_"], ["LLAMA_ROPE_SCALING_TYPE_MAX_VALUE"],
    ),
    types.PoolingType: ("llama.h", "llama_pooling_type", ["LLAMA_POOLING_TYPE_"], []),
    types.AttentionType: ("llama.h", "llama_attention_type", ["LLAMA_ATTENTION_TYPE_"], []),
    types.FlashAttnType: ("llama.h", "llama_flash_attn_type", ["LLAMA_FLASH_ATTN_TYPE_"], []),
    types.VocabType: ("llama.h", "llama_vocab_type", ["LLAMA_VOCAB_TYPE_"], []),
    types.TokenAttr: ("llama.h", "llama_token_attr", ["LLAMA_TOKEN_ATTR_"], []),
    types.FileType: ("llama.h", "llama_ftype", ["LLAMA_FTYPE_ALL_", "LLAMA_FTYPE_MOSTLY_", "LLAMA_FTYPE_"], []),
    types.NumaStrategy: ("ggml-cpu.h", "ggml_numa_strategy", ["GGML_NUMA_STRATEGY_"], ["GGML_NUMA_STRATEGY_COUNT"]),
    types.DeviceType: ("ggml-backend.h", "ggml_backend_dev_type", ["GGML_BACKEND_DEVICE_TYPE_"], []),
    types.ThreadPriority: ("ggml.h", "ggml_sched_priority", ["GGML_SCHED_PRIO_"], []),
    types.GgufType: ("gguf.h", "gguf_type", ["GGUF_TYPE_"], ["GGUF_TYPE_COUNT"]),
    types.GgmlType: ("ggml.h", "ggml_type", ["GGML_TYPE_"], ["GGML_TYPE_COUNT"]),
}  # fmt: skip


def _headers() -> dict[str, Path]:
    root = vendor_dir()
    paths = [root / "include" / "llama.h", *(root / "ggml" / "include").glob("*.h")]
    return {path.name: path for path in paths}


def _enumerators(header: Path, name: str) -> list[str]:
    text = re.sub(r"/\*.*?\*/|//[^\n]*", "", header.read_text(encoding="utf-8"), flags=re.DOTALL)
    (body,) = re.findall(rf"enum\s+{name}\s*\{{(.*?)\}}", text, re.DOTALL)
    return [part.split("=")[0].strip() for part in body.split(",") if part.strip()]


@pytest.fixture(scope="module")
def c_values(tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    """Compile a program that prints the value of every enumerator."""
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    if shutil.which(compiler[0]) is None:
        compiler = ["cc"]
    if shutil.which(compiler[0]) is None:
        pytest.skip("no C compiler")
    headers = _headers()
    names = [n for header, enum, _, _ in ENUMS.values() for n in _enumerators(headers[header], enum)]
    names += ["LLAMA_STATE_SEQ_FLAGS_NONE", "LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY", "LLAMA_STATE_SEQ_FLAGS_ON_DEVICE"]
    folder = tmp_path_factory.mktemp("enums")
    source = folder / "enums.c"
    lines = ["#include <stdio.h>", *(f'#include "{h}"' for h in ("llama.h", "ggml-cpu.h", "ggml-backend.h", "gguf.h"))]
    lines += ["int main(void) {", *(f'  printf("{n} %d\\n", (int) {n});' for n in names), "  return 0;", "}"]
    source.write_text("\n".join(lines) + "\n")
    includes = [f"-I{path}" for path in {path.parent for path in headers.values()}]
    subprocess.run([compiler[0], *includes, str(source), "-o", str(folder / "enums")], check=True)
    done = subprocess.run([folder / "enums"], check=True, capture_output=True, text=True)
    return {name: int(value) for name, value in (line.split() for line in done.stdout.splitlines())}


def _c_members(enum: type[IntEnum], c_values: dict[str, int]) -> dict[str, int]:
    header, name, prefixes, excluded = ENUMS[enum]
    found = {}
    for enumerator in _enumerators(_headers()[header], name):
        if enumerator not in excluded:
            prefix = next(prefix for prefix in prefixes if enumerator.startswith(prefix))
            found[enumerator.removeprefix(prefix)] = c_values[enumerator]
    return found


@pytest.mark.parametrize("enum", list(ENUMS), ids=lambda enum: enum.__name__)
def test_enum_equals_c_enum(enum: type[IntEnum], c_values: dict[str, int]) -> None:
    assert {name: int(member) for name, member in enum.__members__.items()} == _c_members(enum, c_values)


def test_state_flags_equal_c_macros(c_values: dict[str, int]) -> None:
    assert {name: int(member) for name, member in types.StateFlags.__members__.items()} == {
        "NONE": c_values["LLAMA_STATE_SEQ_FLAGS_NONE"],
        "PARTIAL_ONLY": c_values["LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY"],
        "ON_DEVICE": c_values["LLAMA_STATE_SEQ_FLAGS_ON_DEVICE"],
    }


def test_every_enum_is_compared() -> None:
    bases = {IntEnum, IntFlag}
    enums = {obj for obj in vars(types).values() if isinstance(obj, type) and issubclass(obj, (IntEnum, IntFlag))}
    assert enums - bases - {types.StateFlags} == set(ENUMS)
