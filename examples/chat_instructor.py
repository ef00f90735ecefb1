"""Objects of your own classes out of a chat, through the package instructor: pip install instructor 'llamacy[openai]'

python examples/chat_instructor.py [MODEL.gguf]
"""

import sys

import instructor
from pydantic import BaseModel, Field

from llamacy import Llama
from llamacy.starter import pull


class Person(BaseModel):
    name: str = Field(max_length=30)
    age: int = Field(ge=0, le=130)


def main(path: str) -> None:
    with Llama(path, n_ctx=2048) as llm:
        create = instructor.patch(create=llm.create_chat_completion_openai_v1, mode=instructor.Mode.JSON_SCHEMA)
        messages = [{"role": "user", "content": "Jason is 25 years old."}]
        person = create(response_model=Person, messages=messages, temperature=0, max_tokens=128)
        print(type(person).__name__, person.name, person.age)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else str(pull("smollm2-135m")))
