"""The measured side of bench_embed in Python: llamacy, a peer, or PyTorch, by the protocol of native/embed.cpp.

Arguments: the name, the model (for PyTorch the folder of a sentence-transformers model), the most tokens of a text, and
the file of texts.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

_SHOWN = 8


def llamacy(model: str, n_most: int) -> Callable[[list[str]], Any]:
    """Return the call of llamacy that makes unit vectors."""
    from llamacy import Embedding

    return partial(Embedding(model, n_ctx=n_most, n_threads=1, n_threads_batch=1).embed, truncate=True)


def llama_cpp_python(model: str, _n_most: int) -> Callable[[list[str]], Any]:
    """Return that of llama-cpp-python."""
    from llama_cpp import Llama

    llama = Llama(model, embedding=True, n_threads=1, n_threads_batch=1, verbose=False)
    return lambda texts: llama.embed(texts, normalize=True)


def torch(model: str, n_most: int) -> Callable[[list[str]], Any]:
    """Return that of sentence-transformers; it sorts the texts, and batches of 8 were the fastest ones on a CPU."""
    import torch as library
    from sentence_transformers import SentenceTransformer

    library.set_num_threads(1)
    transformer = SentenceTransformer(model, device="cpu")
    transformer.max_seq_length = n_most
    return lambda texts: transformer.encode(texts, batch_size=8, normalize_embeddings=True, show_progress_bar=False)


def main() -> None:
    """Answer each line with the time that all texts took."""
    name, model, n_most, path = sys.argv[1:5]
    makers = {"llamacy": llamacy, "llama-cpp-python": llama_cpp_python, "torch": torch}
    embed = makers[name](model, int(n_most))
    texts = Path(path).read_text(encoding="utf-8").splitlines()
    print(json.dumps({"name": name}), flush=True)
    for _ in sys.stdin:
        wall, cpu = time.perf_counter(), time.process_time()
        vectors = embed(texts)
        taken = {"wall": [time.perf_counter() - wall], "cpu": [time.process_time() - cpu]}
        shown = np.asarray(vectors[:_SHOWN], np.float32).tobytes().hex()
        print(json.dumps({"n_tokens": len(texts), "tokens": [], "text": shown, **taken}), flush=True)


if __name__ == "__main__":
    main()
