"""Write what llama-cpp-python makes of small chats in its chat formats, for tests/chat/test_classic.py.

pip install "llama-cpp-python==0.3.36"
python tests/data/make_classic_goldens.py
"""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path

SYSTEM = {"role": "system", "content": "Be brief."}
TURNS = [
    {"role": "user", "content": "Hello"},
    {"role": "assistant", "content": "Hi!"},
    {"role": "user", "content": "How are you?"},
]
CONVERSATIONS = {"system": [SYSTEM, *TURNS], "turns": TURNS, "user": TURNS[:1]}


def main() -> None:
    """Write the goldens."""
    import llama_cpp
    from llama_cpp import llama_chat_format

    source = inspect.getsource(llama_chat_format)
    goldens: dict[str, dict[str, str]] = {}
    for name, function in re.findall(r'@register_chat_format\("([^"]+)"\)\ndef (\w+)', source):
        formatter = getattr(llama_chat_format, function)
        goldens[name] = {key: formatter(messages=messages).prompt for key, messages in CONVERSATIONS.items()}
    made = {"made_with": {"llama-cpp-python": llama_cpp.__version__}, "formats": goldens}
    path = Path(__file__).with_name("classic-goldens.json")
    path.write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
