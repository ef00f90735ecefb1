"""The examples of the pages on embeddings and on snapshots run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.helpers import REPO, data
from tests.helpers.process import run_python


def examples(page: str) -> list[str]:
    """Return the examples of a page, each to be run by itself."""
    text = (REPO / "docs" / page).read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("number", range(3))
def test_examples_on_embeddings_run_each_by_itself(bert_path: Path, tmp_path: Path, number: int) -> None:
    found = examples("embeddings.md")
    assert len(found) == 3
    (tmp_path / "lines.txt").write_text("a b\nc\n\nd", encoding="utf-8")
    code, n = re.subn(r'"nomic-embed-text\.gguf"|pull\("all-minilm-l6-v2"\)', repr(str(bert_path)), found[number])
    assert n == 1
    code = code.replace('"lines.txt"', repr(str(tmp_path / "lines.txt")))
    shown = run_python(code).stdout.splitlines()
    assert shown[0].startswith(("(3, 32)", "0 (4, 32)", "[")[number])


def test_examples_on_snapshots_run(tmp_path: Path) -> None:
    found = examples("checkpoint.md")
    code = "".join(found[:2]).replace('"model.gguf"', f"{str(data('llama.gguf'))!r}, n_ctx=256, chat_format='chatml'")
    code = code.replace("messages)", "messages, max_tokens=4)")
    for name in ("chats", "chat.state", "chat.session"):
        assert f'"{name}"' in code
        code = code.replace(f'"{name}"', repr(str(tmp_path / name)))
    run_python(code)
    assert {path.name for path in tmp_path.iterdir()} == {"chats", "chat.state", "chat.session"}


def test_example_of_a_store_goes_on_from_what_it_has() -> None:
    code = examples("checkpoint.md")[2].replace('"model.gguf"', repr(str(data("llama.gguf")))).replace("1024", "256")
    first, second = run_python(code).stdout.splitlines()
    whole = [int(number) for number in re.findall(r"\d+", first)]
    rest = [int(number) for number in re.findall(r"\d+", second)]
    assert whole[0] == 0
    assert 0 < rest[0] <= whole[1] < rest[1]


def test_example_of_checkpoints_runs() -> None:
    start = (
        "from llamacy import Batch, Context, Model\n"
        f"context = Context(Model({str(data('mamba.gguf'))!r}), n_ctx=256)\n"
        "tokens = prompt = context.model.vocab.tokenize('the cat')\n"
        "seq_id = 0\n"
        "batch = Batch(len(tokens))\n"
        "batch.extend(tokens, 0)\n"
        "context.decode(batch)\n"
    )
    code = examples("checkpoint.md")[3]
    # the prompt is a longer one, so that it goes on from all that was decoded
    end = "print(start == len(tokens))\n"
    code = code.replace("find(seq_id, prompt)", "find(seq_id, [*prompt, prompt[-1]])")
    assert run_python(start + code + end).stdout == "True\n"
