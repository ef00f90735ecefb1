"""What `import llamacy` costs and touches, and that the interpreter ends quietly whatever is still open."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.helpers import data
from tests.helpers.process import run_python

LOAD = f"""
from llamacy.core.model import Model
from llamacy.core.context import Context
model = Model({str(data("llama.gguf"))!r})
context = Context(model, n_ctx=64, n_threads=1, n_threads_batch=1)
"""

QUIET = {"PYTHONWARNINGS": ""}


def test_import_loads_neither_numpy_nor_extensions_nor_native_libraries() -> None:
    done = run_python(
        """
import sys
before = set(sys.modules)
import llamacy
new = {name for name in set(sys.modules) - before}
assert not [name for name in new if name.split(".")[0] in ("numpy", "jinja2", "tqdm", "platformdirs")], new
assert not [name for name in new if name.startswith("llamacy.core")], new
with open("/proc/self/maps") as file:
    mapped = {line.split()[-1] for line in file if "/" in line}
assert not [path for path in mapped if "llamacy" in path or "ggml" in path or "libgomp" in path], mapped
print("fine")
""",
    )
    assert done.stdout == "fine\n"
    assert done.stderr == ""


def test_use_of_core_loads_no_numpy() -> None:
    run_python(
        LOAD
        + """
import sys
tokens = model.vocab.tokenize("hello")
model.vocab.detokenize(tokens)
assert "numpy" not in sys.modules
context.close()
model.close()
"""
    )


def test_llama_imports_what_a_completion_needs_and_no_more() -> None:
    run_python(
        f"""
import sys
from llamacy import Llama
imported = set(sys.modules)
# OpenSSL comes with hashlib, archives of all kinds with tempfile; the others serve errors and vectors
for name in ("_hashlib", "tempfile", "shutil", "difflib", "base64", "llamacy.generate.embed.engine",
             "llamacy.generate.embed.requests"):
    assert name not in imported, name
with Llama({str(data("llama.gguf"))!r}, n_ctx=64, n_threads=1, n_threads_batch=1) as llama:
    llama.create_completion("hello", max_tokens=2)
assert set(sys.modules) == imported, set(sys.modules) - imported
"""
    )


def test_public_names_resolve() -> None:
    run_python(
        """
import llamacy
for name in llamacy.__all__:
    getattr(llamacy, name)
assert set(llamacy.__all__) <= set(dir(llamacy))
"""
    )


def test_unknown_name_raises_attribute_error() -> None:
    import llamacy

    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        llamacy.nothing  # noqa: B018


@pytest.mark.parametrize(
    "options",
    [(), ("-X", "dev"), ("-W", "error"), ("-O",), ("-OO",), ("-I",), ("-X", "importtime"), ("-B", "-E")],
    ids=" ".join,
)
def test_ib_009_import_works_under_interpreter_options(options: tuple[str, ...]) -> None:
    prefix = "import sys; sys.path[:0] = sys.argv[1:];" if options in (("-I",), ("-B", "-E")) else ""
    path = [entry for entry in sys.path if entry]
    done = run_python(
        prefix + "import llamacy; from llamacy.core.model import Model; llamacy.Model",
        *(path if prefix else []),
        options=options,
    )
    if "importtime" not in options:
        assert done.stderr == ""


def test_ib_009_import_after_numpy_and_before_numpy() -> None:
    for code in (
        "import numpy; import llamacy; llamacy.Model; llamacy.devices()",
        "import llamacy; llamacy.Model; llamacy.devices(); import numpy; numpy.ones(3) @ numpy.ones(3)",
    ):
        assert run_python(code, options=("-X", "dev")).stderr == ""


@pytest.mark.parametrize("options", [(), ("-X", "dev"), ("-W", "error")], ids=" ".join)
@pytest.mark.parametrize(
    "ending",
    [
        "",
        "del model",
        "del context",
        "del model, context",
        "del context, model",
        "model.close()",
        "context.close(); model.close()",
        "import sys; sys.exit(0)",
        "import gc; gc.disable()",
        "import builtins; builtins.kept = [model, context]",
        "kept = [context]; kept.append(kept)",
        "import threading; threading.Thread(target=lambda held=(model, context): None).start()",
        "class Sub(Context): pass\nsub = Sub(model, n_ctx=64, n_threads=1); sub.me = sub; sub.model_too = model",
        "import atexit; atexit.register(lambda: (context.close(), model.close()))",
        "import atexit; atexit.register(model.vocab.tokenize, 'hello')",
        "import weakref; finalizer = weakref.finalize(context, print, end='')",
    ],
)
def test_lt_001_exit_with_unclosed_objects_is_quiet(ending: str, options: tuple[str, ...]) -> None:
    done = run_python(LOAD + ending, options=options)
    assert done.stderr == ""
    assert done.stdout == ""


@pytest.mark.parametrize(
    "failing",
    [
        "Model('/nowhere.gguf')",
        "Model()",
        "Model(b'\\0')",
        "Model('/dev/null')",
        "Context(None)",
        "Context(model, n_ctx=-1)",
        "Context(model, no_such_option=1)",
    ],
)
def test_lt_001_exit_after_failed_constructor_is_quiet(failing: str) -> None:
    done = run_python(
        LOAD
        + f"""
try:
    {failing}
except Exception:
    pass
else:
    raise SystemExit("nothing was raised")
""",
        options=("-X", "dev"),
    )
    assert done.stderr == ""


def test_exit_by_exception_shows_the_exception_alone() -> None:
    done = run_python(LOAD + "raise ZeroDivisionError('mine')", check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "ZeroDivisionError: mine"
    assert "Exception ignored" not in done.stderr


def test_exit_while_a_thread_decodes_is_clean() -> None:
    done = run_python(
        LOAD
        + """
import threading
from llamacy.core.batch import Batch
started = threading.Event()
def work():
    batch = Batch(32)
    while True:
        batch.clear()
        for index in range(32):
            batch.add(5, index, logits=True)
        context.memory.clear()
        context.decode(batch)
        started.set()
threading.Thread(target=work, daemon=True).start()
started.wait()
"""
    )
    assert done.stderr == ""


def test_lt_012_load_works_where_stdout_and_stderr_have_no_fileno() -> None:
    done = run_python(
        """
import io, sys
real, sys.stdout, sys.stderr = sys.stdout, io.StringIO(), io.StringIO()
"""
        + LOAD
        + """
context.close(); model.close()
written = sys.stdout.getvalue() + sys.stderr.getvalue()
sys.stdout = real
print(repr(written))
"""
    )
    assert done.stdout == "''\n"
    assert done.stderr == ""


def test_lt_012_load_works_without_stdout_and_stderr() -> None:
    run_python("import sys\nsys.stdout = sys.stderr = None\n" + LOAD)


def test_lt_014_two_uses_work_with_closed_file_descriptors() -> None:
    done = run_python(
        """
import os, sys
os.close(2)
"""
        + LOAD
        + """
for _ in range(2):
    print(model.vocab.detokenize(model.vocab.tokenize("hello")).decode())
try:
    Model("/nowhere.gguf")
except OSError:
    print("refused")
"""
    )
    assert done.stdout.splitlines()[-1] == "refused"


def test_lt_014_two_uses_work_with_broken_pipe_as_stderr() -> None:
    done = run_python(
        """
import os, sys
reading, writing = os.pipe()
os.dup2(writing, 2)
os.close(reading)
os.close(writing)
"""
        + LOAD
        + """
for _ in range(2):
    print(model.vocab.detokenize(model.vocab.tokenize("hello")).decode())
"""
    )
    assert done.stdout.count("hello") == 2


def test_native_code_writes_nothing_to_file_descriptors(tmp_path: Path) -> None:
    bad = tmp_path / "bad.gguf"
    bad.write_bytes(b"GGUF" + bytes(100))
    done = run_python(
        LOAD
        + f"""
context.close()
try:
    Model({str(bad)!r})
except OSError:
    pass
""",
        options=("-X", "faulthandler"),
    )
    assert done.stdout == ""
    assert done.stderr == ""


def test_fork_after_load_leaves_the_parent_usable() -> None:
    done = run_python(
        LOAD
        + """
import os, warnings
warnings.simplefilter("ignore")
pid = os.fork()
if pid == 0:
    # the child only reads
    ok = bytes(model.vocab.detokenize(model.vocab.tokenize("hello"), remove_special=True)) == b" hello"
    os._exit(0 if ok else 1)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
print(list(model.vocab.tokenize("a")))
"""
    )
    assert done.stdout == "[1, 260, 261]\n"
