"""Ctrl-C during an import that a call leads to: it is answered, and the package can be used afterwards."""

from __future__ import annotations

import sys

import pytest

from tests.helpers import data
from tests.helpers.process import run_python

# Each moment is tried in a copy of a process that has imported nothing yet. From where an extension module is looked
# for on, another process waits a little longer each time before it sends SIGINT.
MOMENTS = """
import os, signal, sys, time, traceback

class Finder:
    '''Finds nothing; the clock starts when it is asked for a module.'''
    def __init__(self, delay):
        self.delay, self.sender = delay, None
    def find_spec(self, name, path=None, target=None):
        if self.sender is None and name.endswith("EXTENSION"):
            pid = os.getpid()
            self.sender = os.fork()
            if self.sender == 0:
                time.sleep(self.delay)
                os.kill(pid, signal.SIGINT)
                os._exit(0)

def attempt(delay):
    finder = Finder(delay)
    sys.meta_path.insert(0, finder)
    interrupted = False
    try:
        CALL
        assert finder.sender is not None
        os.waitpid(finder.sender, 0)
    except KeyboardInterrupt:
        interrupted = True
    sys.meta_path.remove(finder)
    assert interrupted
    assert signal.getsignal(signal.SIGINT) is handler
    CALL
    CHECK

handler = signal.getsignal(signal.SIGINT)
assert handler is signal.default_int_handler
for n in range(N):
    child = os.fork()
    if child == 0:
        code = 1
        try:
            attempt(n * STEP)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, n
"""

CALLS = {
    "prefix": ("from llamacy.checkpoint.prefix import Prefix", "Prefix([1, 2, 3])", "numpy"),
    "logits": (
        "from llamacy.generate.callbacks import _processor",
        "_processor(lambda ids, scores: scores)",
        "numpy",
    ),
    "vector": (
        "from llamacy.errors import AdapterError\nfrom llamacy.generate.adapters import control_vector",
        "control_vector([[0.5] * 8], 1.0, None)",
        "numpy",
    ),
    "cache": ("from llamacy.generate.cache import as_store", "as_store(True)", "numpy"),
    "model": ("from llamacy.grammar import Grammar", "Grammar.from_json_schema(list[int])", "pydantic"),
}


NUMPY, PYDANTIC = "_multiarray_umath", "_pydantic_core"


def try_moments(before: str, call: str, check: str, *, extension: str, n: int, step_s: float) -> None:
    if sys.platform == "win32":
        pytest.skip("Windows has no fork")
    code = MOMENTS.replace("CALL", call).replace("CHECK", check).replace("EXTENSION", extension)
    run_python(f"{before}\n{code.replace('STEP', str(step_s)).replace('N)', f'{n})')}")


@pytest.mark.parametrize("name", CALLS)
def test_interrupted_import_leaves_a_package_that_works(name: str) -> None:
    before, call, package = CALLS[name]
    pytest.importorskip(package)
    extension, check = (NUMPY, "import numpy; assert numpy.arange(3).sum() == 3")
    if package == "pydantic":
        extension, check = PYDANTIC, "pass"
    before += f"\nimport sys\nassert {package!r} not in sys.modules"
    try_moments(before, call, check, extension=extension, n=20 if name in ("prefix", "model") else 6, step_s=0.001)


def test_interrupted_embedding_gives_its_locks_back() -> None:
    before = f"""
from llamacy import Embedding
import sys
assert "numpy" not in sys.modules
embedding = Embedding({str(data("llama.gguf"))!r}, n_ctx=64, n_threads=1, n_threads_batch=1)
"""
    check = "assert embedding.embed('hello').size > 0"
    try_moments(before, "embedding.embed('hello')", check, extension=NUMPY, n=8, step_s=0.003)


# what else signals and threads may be like

ELSE = """
import os, signal, sys
from pathlib import Path
from llamacy._imports import import_whole
folder = Path(sys.argv[1])
sys.path.insert(0, str(folder))

def module(name, *lines):
    (folder / f"{name}.py").write_text("\\n".join(lines))
    return name

PRESS = "import os, signal; os.kill(os.getpid(), signal.SIGINT)"
"""


@pytest.mark.parametrize(
    "code",
    [
        pytest.param(
            """
try:
    import_whole(module("failing", PRESS, "raise OSError('no')"))
except KeyboardInterrupt as error:
    assert isinstance(error.__context__, OSError)
assert "failing" not in sys.modules
assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
""",
            id="import that fails",
        ),
        pytest.param(
            """
signal.signal(signal.SIGINT, signal.SIG_IGN)
assert import_whole(module("ignored", PRESS, "x = 1")).x == 1
assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
""",
            id="Ctrl-C is ignored",
        ),
        pytest.param(
            """
calls = []
signal.signal(signal.SIGINT, lambda *arguments: calls.append(arguments))
import_whole(module("pressed", PRESS, PRESS, "x = 1"))
assert [number for number, frame in calls] == [signal.SIGINT], calls
assert calls[0][1] is not None
""",
            id="a handler of the user's",
        ),
        pytest.param(
            """
name = module("changing", "import signal", "signal.signal(signal.SIGINT, print)")
import_whole(name)
assert signal.getsignal(signal.SIGINT) is print
""",
            id="a module with a handler of its own",
        ),
        pytest.param(
            """
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(1) as pool:
    assert pool.submit(import_whole, module("beside", "x = 1")).result().x == 1
assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
""",
            id="another thread",
        ),
        pytest.param(
            """
try:
    import_whole("nowhere")
except ImportError as error:
    assert error.name == "nowhere"
else:
    raise AssertionError
assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
import_whole(module("folded", "x = 1"))
assert import_whole("folded") is sys.modules["folded"]
""",
            id="no such module",
        ),
    ],
)
def test_whole_import(code: str, tmp_path) -> None:
    if sys.platform == "win32":
        pytest.skip("os.kill ends a process of Windows")
    run_python(ELSE + code, str(tmp_path))
