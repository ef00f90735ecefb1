"""Complete a text: at once, as a stream, and token by token.

python examples/complete.py [MODEL.gguf]
"""

import sys

from llamacy import Llama
from llamacy.starter import pull


def main(path: str) -> None:
    with Llama(path, n_ctx=512, seed=1) as llm:
        result = llm.create_completion("1, 2, 3, 4, 5, 6, 7,", max_tokens=12, temperature=0)
        print("whole: ", result["choices"][0]["text"], result["usage"])

        print("stream:", end="")
        for chunk in llm.create_completion("Once upon a time", max_tokens=32, stop=["\n\n"], stream=True):
            print(chunk["choices"][0]["text"], end="", flush=True)
        print()

        prompt = llm.tokenize("a b c d e f g h i j")
        tokens = list(llm.generate(prompt, max_tokens=12, temperature=0))
        print("tokens:", tokens, llm.detokenize(tokens))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else str(pull("smollm2-135m")))
