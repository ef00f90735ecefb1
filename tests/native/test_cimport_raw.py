"""Cython code may cimport the mirrors: the handles without any header, the rest with the include path."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from buildtools.paths import ROOT

Check = Callable[..., "CompletedProcess[str]"]

# A class that keeps handles and a function that uses a scalar: all that the .pxd of a class needs.
HANDLES = """
from llamacy.native cimport handles
from llamacy.native.handles cimport ggml_backend_dev_t, llama_context, llama_model, llama_sampler, llama_token

cdef class Holder:
    cdef llama_model *model
    cdef const llama_sampler *sampler
    cdef ggml_backend_dev_t device
    cdef handles.mtmd_context *media

    def empty(self):
        return self.model == NULL and self.device == NULL and self.media == NULL

cdef llama_token next_token(llama_context *ctx, llama_token token) noexcept nogil:
    return token + 1

def use():
    return next_token(NULL, 1)
"""

# A few calls into each mirror, across modules, the way the classes of the package make them.
MIRRORS = """
from libc.string cimport memset
from libcpp cimport bool

from llamacy.native cimport ggml as c_ggml
from llamacy.native cimport ggml_alloc as c_alloc
from llamacy.native cimport ggml_backend as c_backend
from llamacy.native cimport ggml_cpu as c_cpu
from llamacy.native cimport ggml_opt as c_opt
from llamacy.native cimport gguf as c_gguf
from llamacy.native cimport handles
from llamacy.native cimport llama as c_llama
from llamacy.native cimport llama_ext as c_ext
from llamacy.native cimport mtmd as c_mtmd
from llamacy.native cimport mtmd_helper as c_helper


cdef class Holder:
    cdef handles.llama_context *ctx
    cdef handles.llama_sampler *sampler
    cdef handles.ggml_tensor *tensor

cdef bool abort(void *data) noexcept nogil:
    return False

cdef bool progress(float value, void *data) noexcept nogil:
    return True

cdef const char *name(const c_llama.llama_sampler *sampler) noexcept nogil:
    return <const char *> sampler.ctx

cdef void apply(c_llama.llama_sampler *sampler, c_llama.llama_token_data_array *row) noexcept nogil:
    row.data[0].logit = 0
    row.selected = 0

cdef c_llama.llama_sampler_i interface
memset(&interface, 0, sizeof(interface))
interface.name = name
interface.apply = apply

def decode(Holder holder):
    cdef c_llama.llama_batch batch = c_llama.llama_batch_init(4, 0, 1)
    cdef int status
    with nogil:
        status = c_llama.llama_decode(holder.ctx, batch)
        c_llama.llama_batch_free(batch)
    c_llama.llama_sampler_accept(holder.sampler, c_llama.LLAMA_TOKEN_NULL)
    return status, c_llama.llama_pooling_type(holder.ctx) == c_llama.LLAMA_POOLING_TYPE_NONE

def parameters():
    cdef c_llama.llama_context_params context = c_llama.llama_context_default_params()
    cdef c_llama.llama_model_params model = c_llama.llama_model_default_params()
    cdef c_llama.llama_model_kv_override override
    context.abort_callback = abort
    context.type_k = c_ggml.GGML_TYPE_F16
    context.pooling_type = <c_llama.llama_pooling_type_enum> 1
    model.progress_callback = progress
    override.tag = c_llama.LLAMA_KV_OVERRIDE_TYPE_INT
    override.key[0] = 0
    override.val_i64 = 1
    model.kv_overrides = &override
    return context.n_ctx, c_llama.LLAMA_DEFAULT_SEED, c_llama.LLAMA_STATE_SEQ_FLAGS_ON_DEVICE

def memory(Holder holder):
    cdef c_ext.llama_memory_breakdown breakdown = c_ext.llama_get_memory_breakdown(holder.ctx)
    return [(entry.second.model, entry.second.compute) for entry in breakdown]

def devices():
    cdef c_backend.ggml_backend_dev_props properties
    cdef handles.ggml_backend_dev_t device = c_backend.ggml_backend_dev_get(0)
    cdef c_backend.ggml_backend_dev_type_enum kind = c_backend.ggml_backend_dev_type(device)
    c_backend.ggml_backend_dev_get_props(device, &properties)
    return properties.name, properties.caps.async_, kind

def tensors(Holder holder):
    cdef c_ggml.ggml_tensor *tensor = holder.tensor
    cdef c_opt.ggml_opt_optimizer_params options = c_opt.ggml_opt_get_default_optimizer_params(NULL)
    cdef c_gguf.gguf_init_params init
    init.no_alloc = True
    c_alloc.ggml_gallocr_free(NULL)
    c_cpu.ggml_cpu_init()
    return tensor.ne[0], tensor.op_params[1], options.adamw.alpha, c_gguf.GGUF_MAGIC, c_ggml.GGML_TENSOR_SIZE

def media():
    cdef c_mtmd.mtmd_context_params params = c_mtmd.mtmd_context_params_default()
    cdef c_helper.mtmd_helper_gen_audio_inp inp
    inp.out_type = c_helper.MTMD_HELPER_GEN_AUDIO_OUTTYPE_PCM
    return params.batch_max_tokens, c_mtmd.mtmd_get_memory_usage(b"file", params).backend_mem_usage.size()
"""


def _cythonize(folder: Path, text: str, *, cplus: bool) -> Path:
    source, output = folder / "consumer.pyx", folder / ("consumer.cpp" if cplus else "consumer.c")
    source.write_text(text)
    command = [sys.executable, "-m", "cython", "-3", "-Werror", "-I", str(ROOT / "src"), "-o", str(output)]
    result = subprocess.run(
        [*command, *(["--cplus"] if cplus else []), str(source)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert result.returncode == 0, result.stderr
    return output


PYTHON_ONLY = [f"-I{sysconfig.get_paths()['include']}"]


def test_cimport_of_handles_compiles_without_a_header_in_c(tmp_path: Path, check_c: Check) -> None:
    result = check_c(_cythonize(tmp_path, HANDLES, cplus=False), *PYTHON_ONLY)
    assert result.returncode == 0, result.stderr


def test_cimport_of_handles_compiles_without_a_header_in_cxx(tmp_path: Path, check_cxx: Check) -> None:
    result = check_cxx(_cythonize(tmp_path, HANDLES, cplus=True), *PYTHON_ONLY)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("cplus", [True, False])
def test_handles_and_true_headers_share_a_translation_unit(
    before: bool, cplus: bool, tmp_path: Path, check_c: Check, check_cxx: Check, include_flags: list[str]
) -> None:
    output = _cythonize(tmp_path, HANDLES, cplus=cplus)
    headers = ["llama.h", "mtmd.h", "mtmd-helper.h"] + (["llama-ext.h"] if cplus else [])
    includes = "".join(f'#include "{header}"\n' for header in headers)
    text = output.read_text()
    output.write_text(includes + text if before else text + includes)
    result = (check_cxx if cplus else check_c)(output, *include_flags)
    assert result.returncode == 0, result.stderr


def test_cimport_of_every_mirror_compiles(tmp_path: Path, check_cxx: Check, include_flags: list[str]) -> None:
    result = check_cxx(_cythonize(tmp_path, MIRRORS, cplus=True), *include_flags)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize(
    "misuse",
    [
        "c_llama.llama_decode(sampler, batch)",
        "c_llama.llama_context_default_params().no_such_field",
        "c_llama.llama_no_such_function()",
    ],
)
def test_cimport_of_a_mirror_rejects_misuse(misuse: str, tmp_path: Path) -> None:
    text = (
        "from llamacy.native cimport llama as c_llama\n"
        "def f():\n"
        "    cdef c_llama.llama_sampler *sampler = NULL\n"
        "    cdef c_llama.llama_batch batch\n"
        f"    {misuse}\n"
    )
    with pytest.raises(AssertionError, match=r"consumer\.pyx:5"):
        _cythonize(tmp_path, text, cplus=True)
