"""Write tool_outputs/templates.json: what the templates of the vendored tree write for calls in the history.

Each template renders a conversation whose last message is the assistant's; what it writes after the user's message is
what the model was trained to write. Needs jinja2, and the vendored tree.

    python tests/data/make_tool_outputs.py
"""

from __future__ import annotations

import datetime
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Template
from jinja2.exceptions import TemplateError
from jinja2.ext import Extension
from jinja2.sandbox import SandboxedEnvironment

REPO = Path(__file__).parents[2]
TEMPLATES = REPO / "vendor" / "llama.cpp" / "models" / "templates"
OUTPUT = Path(__file__).parent / "tool_outputs" / "templates.json"

CITY = {"type": "string", "description": "A city"}
TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": f"Function {name}",
            "parameters": {"type": "object", "properties": properties, "required": required},
        },
    }
    for name, properties, required in (
        ("get_weather", {"city": CITY, "days": {"type": "integer", "description": "How many"}}, ["city"]),
        (
            "run_code",
            {
                "code": {"type": "string", "description": "The code"},
                "options": {
                    "type": "object",
                    "description": "Options",
                    "properties": {},
                    "additionalProperties": {"description": "Anything"},
                },
                "dry": {"type": "boolean", "description": "Whether to do nothing"},
                "factor": {"type": "number", "description": "A factor"},
            },
            ["code"],
        ),
        ("ping", {}, []),
    )
]
CASES: dict[str, dict[str, Any]] = {
    "one": {"calls": [("get_weather", {"city": "Paris", "days": 3})]},
    "two": {"calls": [("get_weather", {"city": "Rome"}), ("get_weather", {"city": "Oslo", "days": 1})]},
    "text": {"content": "I will look: that is {easy}.", "calls": [("get_weather", {"city": "Paris"})]},
    "thinking": {"reasoning": "The user wants\n\nthe weather.", "calls": [("get_weather", {"city": "Paris"})]},
    "nested": {
        "calls": [
            (
                "run_code",
                {
                    "code": 'if (a) { b("}]", 1); }\n\tc = [1]',
                    "options": {"a": {"b": [1, "]}"]}, "c": {"d": [[]], "e": False}},
                    "dry": True,
                    "factor": -1.5,
                },
            )
        ]
    },
    "unicode": {"calls": [("get_weather", {"city": 'Zürich "x" 東京 🏋️‍♂️ \\n'})]},
    "digits": {"calls": [("get_weather", {"city": "123", "days": 0})]},
    "empty": {"calls": [("ping", {})]},
}
# what a template writes in a way that can't be read back, or in a turn of its own
LEFT_OUT = {
    ("LFM2.5-8B-A1B", "unicode"): "writes a backslash in a string as it is",
    ("NVIDIA-Nemotron-Nano-v2", "text"): "writes content and calls as two turns",
    ("Apriel-1.6-15b-Thinker-fixed", "text"): "writes no end of thinking before the content",
    ("MiniMax-M3", "nested"): "writes an empty array as nothing",
}
# what ends a turn
ENDS = re.compile(
    r"(?:\s|<\|im_end\|>|<EOS>|<\|eot_id\|>|<\|eom_id\|>|<\|end\|>|<\|call\|>|<\|eot\|>|<\|calls\|>|<\|ifm\|im_end\|>"
    r"|<\|end_of_msg\|>|<\|end_of_text\|>|<｜end▁of▁sentence｜>|<end_of_sentence>|\[e~\[|<seed:eos>|<SPECIAL_12>"
    r"|<turn\|>|<\|tool_response>|<\|role_end\|>|<\|END_OF_TURN_TOKEN\|>|<sep>|</assistant>|<｜hy_eos:opensource｜>"
    r"|<\|user_end\|>|<\|assistant_end\|>|<\|message_sep\|>|<\|begin_assistant\|>"
    r"|<\|START_OF_TURN_TOKEN\|><\|CHATBOT_TOKEN\|><\|START_THINKING\|><\|END_THINKING\|>|<｜Assistant｜>"
    r"|<\|start_header_id\|>assistant<\|end_header_id\|>)+\Z"
)


class Generation(Extension):
    """The tag that marks what the assistant wrote."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Any) -> Any:
        """Return what stands in the tag."""
        next(parser.stream)
        return parser.parse_statements(["name:endgeneration"], drop_needle=True)


def environment() -> SandboxedEnvironment:
    """Return the environment that the templates expect."""

    def fail(message: str) -> None:
        raise TemplateError(message)

    def to_json(value: Any, ensure_ascii: bool = False, **options: Any) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, default=list, **options)

    made = SandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, "jinja2.ext.loopcontrols"]
    )
    made.filters["tojson"] = to_json
    made.filters["from_json"] = json.loads
    made.globals["raise_exception"] = fail
    made.globals["strftime_now"] = datetime.datetime(2026, 1, 2, tzinfo=datetime.timezone.utc).strftime
    return made


@cache
def compiled(source: str) -> Template:
    """Return a template."""
    return environment().from_string(source)


def render(source: str, messages: list[dict[str, Any]], **variables: Any) -> str:
    """Render a template."""
    return compiled(source).render(
        messages=messages,
        tools=TOOLS,
        bos_token="<BOS>",
        eos_token="<EOS>",
        functions=json.dumps(TOOLS),
        datetime="2026-01-02",
        **variables,
    )


def written(source: str, case: dict[str, Any], *, as_text: bool) -> tuple[str, str]:
    """Return the end of the prompt, and what the model is to write after it."""
    question = [{"role": "user", "content": "QUESTION"}]
    message: dict[str, Any] = {"role": "assistant", "content": case.get("content", "")}
    message["reasoning_content"] = case.get("reasoning", "")
    if "reasoning" in case:
        message["thinking"] = case["reasoning"]
    message["tool_calls"] = [
        {
            "id": f"call0000{number}",
            "type": "function",
            "function": {"name": name, "arguments": json.dumps(value, ensure_ascii=False) if as_text else value},
        }
        for number, (name, value) in enumerate(case["calls"])
    ]
    prompt = render(source, question, add_generation_prompt=True)
    whole = render(source, [*question, message], add_generation_prompt=False)
    prompt, whole = (text[text.rindex("QUESTION") + 8 :] for text in (prompt, whole))
    count = 0
    while prompt[count : count + 1] == whole[count : count + 1] != "":
        count += 1
    # a prompt that goes another way does so at a tag
    begun = max(whole.rfind("<", 0, count), whole.rfind("[", 0, count))
    if begun >= 0 and not re.search(r"[>\]]", whole[begun:count]):
        count = begun
    if prompt.endswith(("reasoning steps:\n", "<|CHATBOT_TOKEN|>")):
        # the history doesn't repeat it, or goes on with another turn
        turn = whole[count:].removeprefix("<|CHATBOT_TOKEN|>")
        return prompt, ENDS.sub("", turn.partition("<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>")[0])
    return whole[:count], ENDS.sub("", whole[count:])


def is_whole(case: dict[str, Any], text: str) -> bool:
    """Tell whether all of a case is in a text: some templates leave out what their model doesn't write."""
    parts = [case.get("content", ""), case.get("reasoning", "")]
    for name, value in case["calls"]:
        parts += [name, *(word for word in value.values() if word in ("Paris", "Oslo", "Rome"))]
    return all(part in text for part in parts) and "<｜Assistant｜>" not in text


def document() -> dict[str, Any]:
    """Return what the file holds."""
    found: dict[str, Any] = {}
    for path in sorted(TEMPLATES.glob("*.jinja")):
        source = path.read_text(encoding="utf-8")
        cases = {}
        for name, case in CASES.items():
            for as_text in (False, True):
                try:
                    suffix, text = written(source, case, as_text=as_text)
                except (TemplateError, TypeError):
                    continue
                if is_whole(case, text) and (path.stem, name) not in LEFT_OUT:
                    cases[name] = {"prompt_suffix": suffix, "text": text}
                    break
        found[path.stem] = cases
    # tuples are lists there
    return json.loads(json.dumps({"tools": TOOLS, "expected": CASES, "templates": found}))


def main() -> None:
    """Write the file."""
    OUTPUT.parent.mkdir(exist_ok=True)
    OUTPUT.write_text(json.dumps(document(), ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
