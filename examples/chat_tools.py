"""Let a model call a function, and answer with what it returned.

python examples/chat_tools.py [MODEL.gguf]
"""

import json
import sys

from llamacy import Llama
from llamacy.starter import pull


def get_weather(city: str, unit: str = "C") -> str:
    degrees = 21 if unit == "C" else 70
    return f"It is sunny in {city}, with {degrees} {unit}."


FUNCTIONS = {"get_weather": get_weather}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "Tells the weather in a city",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string", "maxLength": 20}, "unit": {"enum": ["C", "F"]}},
                "required": ["city"],
            },
        },
    }
]


def main(path: str) -> None:
    messages = [{"role": "user", "content": "What is the weather like in Rome?"}]
    with Llama(path, n_ctx=1024) as llm:
        # A large model decides by itself (tool_choice="auto"); this small one is told to make a call first.
        choice: object = {"type": "function", "function": {"name": "get_weather"}}
        for _ in range(3):
            result = llm.create_chat_completion(messages, tools=TOOLS, tool_choice=choice, max_tokens=96, temperature=0)
            message = result["choices"][0]["message"]
            messages.append(message)
            if "tool_calls" not in message:
                break
            for call in message["tool_calls"]:
                arguments = json.loads(call["function"]["arguments"])
                returned = FUNCTIONS[call["function"]["name"]](**arguments)
                print("call:", call["function"]["name"], arguments, "→", returned)
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": returned})
            choice = "none"
        print("answer:", message["content"])


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else str(pull("smollm2-135m")))
