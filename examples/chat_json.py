"""Answers in JSON that a schema allows, whatever the model would rather write.

python examples/chat_json.py [MODEL.gguf]
"""

import json
import sys

from llamacy import Llama
from llamacy.starter import pull

CITY = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "country": {"type": "string", "maxLength": 20},
        "population": {"type": "integer", "minimum": 0, "maximum": 40_000_000},
    },
    "required": ["name", "country", "population"],
    "additionalProperties": False,
}


def main(path: str) -> None:
    messages = [{"role": "user", "content": "Tell me about Paris, as JSON with name, country and population."}]
    with Llama(path, n_ctx=1024) as llm:
        result = llm.create_chat_completion(
            messages,
            response_format={"type": "json_schema", "json_schema": {"name": "city", "schema": CITY}},
            temperature=0,
            max_tokens=128,
        )
        print("city:", json.loads(result["choices"][0]["message"]["content"]))

        messages = [{"role": "user", "content": "Is the sea salty? Answer yes or no."}]
        form = {"type": "regex", "pattern": "yes|no"}
        result = llm.create_chat_completion(messages, response_format=form, temperature=0)
        print("salty:", result["choices"][0]["message"]["content"])


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else str(pull("smollm2-135m")))
