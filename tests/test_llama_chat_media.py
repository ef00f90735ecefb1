"""Parts of messages that are no text: refused in plain words, whatever the template would write in their place."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from llamacy import Llama
from tests.helpers import data

# writes something for whatever is no text, as templates of models that see do
_SEES = (
    "{% for m in messages %}[{{ m.role }}: {% if m.content is string %}{{ m.content }}{% else %}"
    "{% for p in m.content %}{% if p.type == 'text' %}{{ p.text }}{% elif 'image' in p.type %}<image>"
    "{% elif 'audio' in p.type %}<audio>{% else %}<video>{% endif %}{% endfor %}{% endif %}]{% endfor %}"
)
_READS = "{% for m in messages %}[{{ m.role }}: {{ m.content }}]{% endfor %}"
_PARTS: list[dict[str, Any]] = [
    {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}},
    {"type": "image_url", "image_url": "https://example.org/a.png"},
    {"type": "image", "image": b"\x89PNG"},
    {"type": "input_image", "image_url": "https://example.org/a.png"},
    {"type": "input_audio", "input_audio": {"data": "AA==", "format": "wav"}},
    {"type": "audio_url", "audio_url": {"url": "https://example.org/a.wav"}},
    {"type": "audio", "audio": b"RIFF"},
    {"type": "video_url", "video_url": {"url": "https://example.org/a.mp4"}},
    {"type": "video", "video": b"\x00"},
    {"type": "input_video", "video_url": "https://example.org/a.mp4"},
    {"type": "file", "file": {"file_id": "file-1"}},
    {"type": "input_file", "file_id": "file-1"},
]


class _Part:
    """A part as clients make them: an object with `model_dump`."""

    def __init__(self, fields: dict[str, Any]) -> None:
        self._fields = fields

    def model_dump(self, **_: Any) -> dict[str, Any]:
        return self._fields


@pytest.fixture(params=[_SEES, _READS], ids=["template with images", "template of text"], scope="module")
def llama(request: pytest.FixtureRequest) -> Iterator[Llama]:
    with Llama(data("llama.gguf"), chat_template=request.param, n_threads=1, n_threads_batch=1) as made:
        yield made


@pytest.mark.parametrize("role", ["user", "system", "assistant"])
@pytest.mark.parametrize("part", _PARTS, ids=lambda part: part["type"])
def test_part_that_is_no_text_is_refused_in_plain_words(llama: Llama, part: dict[str, Any], role: str) -> None:
    for shown in (part, _Part(part)):
        messages = [
            {"role": "user", "content": "hi"},
            {"role": role, "content": [{"type": "text", "text": "What is this?"}, shown]},
        ]
        for ask in (llama.chat_prompt, llama.create_chat_completion):
            with pytest.raises(ValueError, match="this release of llamacy reads text only") as raised:
                ask(messages)
            assert f"messages[1].content[1] is a part of the type {part['type']!r}" in str(raised.value)


def test_parts_of_text_are_read(llama: Llama) -> None:
    parts = [{"type": kind, "text": kind} for kind in ("text", "input_text", "output_text")]
    prompt = llama.chat_prompt([{"role": "user", "content": ["plain", *parts, {"type": "refusal", "refusal": "no"}]}])
    assert [word in prompt for word in ("plain", "text", "input_text", "output_text", "no")] == [True] * 5


def test_part_without_a_type_is_not_told_to_be_an_image(llama: Llama) -> None:
    with pytest.raises(ValueError, match=r"content\[0\]\.type must be a text such as 'text', not None"):
        llama.chat_prompt([{"role": "user", "content": [{"image_url": "https://example.org/a.png"}]}])
