"""Creates and closes objects of one class, many times, and says what that leaves behind.

cycles.py            names of the classes
cycles.py NAME N     what N objects of one class leave
"""

from __future__ import annotations

import gc
import json
import sys
import time
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

Create = Callable[[], Any]


def factories() -> dict[str, Callable[[], Create]]:
    """Return for each class what prepares its creation."""
    return {
        "Model": _model,
        "Context": _context,
        "Batch": _batch,
        "Sampler": _sampler,
        "SamplerChain": _sampler_chain,
        "GrammarSampler": _grammar,
        "ThreadPool": _thread_pool,
        "Gguf": _gguf,
        "LoraAdapter": _lora,
        "ControlVector": _control_vector,
        "Llama": _llama,
    }


def _model() -> Create:
    from micro_model import nano_model

    from llamacy import Model

    path = nano_model()
    return lambda: Model(path)


def _context() -> Create:
    from llamacy import Context

    model = _model()()
    return lambda: Context(model, n_ctx=256, n_batch=8, n_ubatch=8, n_threads=1, n_threads_batch=1)


def _batch() -> Create:
    from llamacy import Batch

    return lambda: Batch(512)


def _sampler() -> Create:
    from llamacy import Sampler

    return lambda: Sampler.dist(1)


def _sampler_chain() -> Create:
    from llamacy import Sampler, SamplerChain

    return lambda: SamplerChain([Sampler.top_k(40), Sampler.temp(0.8), Sampler.dist(1)])


def _grammar() -> Create:
    from llamacy import Sampler

    vocab = _model()().vocab
    return lambda: Sampler.grammar(vocab, 'root ::= ("a" | "b")+', "root")


def _thread_pool() -> Create:
    from llamacy import ThreadPool

    return lambda: ThreadPool(2)


def _gguf() -> Create:
    from micro_model import nano_model

    from llamacy import Gguf

    path = nano_model()
    return lambda: Gguf(path)


def _lora() -> Create:
    from micro_model import nano_lora

    from llamacy import LoraAdapter

    model, path = _model()(), nano_lora()
    return lambda: LoraAdapter(model, path)


def _control_vector() -> Create:
    from llamacy import ControlVector

    rows = memoryview(array("f", [0.5] * 64)).cast("B").cast("f", (2, 32))
    return lambda: ControlVector(rows)


def _llama() -> Create:
    from llamacy import Llama

    model = _model()()
    return lambda: Llama(model, n_ctx=256, n_batch=8, n_ubatch=8, n_threads=1, n_threads_batch=1)


def resident_bytes() -> int:
    """Return the resident memory of this process."""
    with Path("/proc/self/status").open(encoding="ascii") as status:
        return next(1024 * int(line.split()[1]) for line in status if line.startswith("VmRSS:"))


def main() -> None:
    """List the classes, or run the cycles of one."""
    known = factories()
    if len(sys.argv) == 1:
        print("\n".join(known))
        return
    from llamacy import live_handles

    name, cycles = sys.argv[1], int(sys.argv[2])
    create = known[name]()
    _cycle(create, max(cycles // 10, 1))
    handles, before = live_handles(), resident_bytes()
    begin = time.process_time()
    _cycle(create, cycles)
    seconds = time.process_time() - begin
    result = {
        "handles": sum(live_handles().values()) - sum(handles.values()),
        "growth": resident_bytes() - before,
        "microseconds": 1e6 * seconds / cycles,
    }
    print(json.dumps(result))


def _cycle(create: Create, cycles: int) -> None:
    for _ in range(cycles):
        made = create()
        close = getattr(made, "close", None)
        if close is not None:
            close()
        del made
    gc.collect()


if __name__ == "__main__":
    main()
