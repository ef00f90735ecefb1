"""Talk with a model: answers come as they are written, and the conversation goes on.

python examples/chat_stream.py [MODEL.gguf]
"""

import sys

from llamacy import Llama
from llamacy.starter import pull


def main(path: str) -> None:
    messages = [{"role": "system", "content": "You are a helpful assistant."}]
    with Llama(path, n_ctx=1024) as llm:
        for question in ("What is 2+2?", "Name a planet."):
            messages.append({"role": "user", "content": question})
            print(">", question)
            answer = ""
            for chunk in llm.create_chat_completion(messages, max_tokens=48, temperature=0, stream=True):
                piece = chunk["choices"][0]["delta"].get("content") or ""
                print(piece, end="", flush=True)
                answer += piece
            print()
            # what was said stays in the model's memory: of the next prompt only what is new is computed
            print("  prompt tokens from memory:", chunk["usage"]["prompt_tokens_details"]["cached_tokens"])
            messages.append({"role": "assistant", "content": answer})


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else str(pull("smollm2-135m")))
