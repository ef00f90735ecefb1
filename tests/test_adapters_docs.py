"""The examples of the pages on adapters and on reranking run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.helpers import REPO, data, models
from tests.helpers.process import run_python


def code_of(page: str, **files: Path) -> str:
    """Return the examples of a page, with paths in place of file names and one thread."""
    text = (REPO / "docs" / page).read_text(encoding="utf-8")
    code = "".join(re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL))
    for name, path in files.items():
        quoted = f'"{name}.gguf"'
        assert quoted in code
        code = code.replace(quoted, repr(str(path)))
    return code.replace("Embedding(", "partial(Embedding, n_threads=1, n_threads_batch=1)(").replace(
        "n_ctx=4096", "n_ctx=256, n_threads=1, n_threads_batch=1"
    )


def test_examples_on_adapters_run(tmp_path):
    files = {
        name: models.write_lora(tmp_path / f"{name}.gguf", data("llama.gguf"), seed=seed)
        for seed, name in enumerate(("french", "poems"))
    }
    code = code_of("adapters.md", model=data("llama.gguf"), **files)
    assert run_python(code).stdout.split() == ["0.5", str(files["poems"])]


def test_examples_on_reranking_run(rank_path, tmp_path):
    classifier = models.write_bert(
        tmp_path / "classifier.gguf", pooling=models.gguf.PoolingType.RANK, n_labels=2, seed=9
    )
    code = code_of("reranking.md", reranker=rank_path, classifier=classifier)
    lines = run_python("from functools import partial\n" + code).stdout.splitlines()
    assert len(lines) == 4
    assert {line.split()[0] for line in lines[:2]} < {"0", "1", "2"}
    assert lines[2] in ("label0", "label1")
    assert lines[3].count("label0") == lines[3].count("label1") == 2


@pytest.mark.parametrize("page", ["adapters.md", "reranking.md"])
def test_errors_of_the_page_exist(page):
    import llamacy

    text = (REPO / "docs" / page).read_text(encoding="utf-8")
    names = set(re.findall(r"`(\w+Error)`", text))
    assert names
    for name in names - {"ValueError"}:
        assert hasattr(llamacy, name), name
