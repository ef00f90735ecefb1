"""Several choices, the log-probabilities of a prompt, a stop from another thread, and requests of an event loop.

python examples/completion_choices.py [MODEL.gguf]
"""

import asyncio
import math
import sys
import threading

from llamacy import Llama
from llamacy.starter import pull


def main(path: str) -> None:
    with Llama(path, n_ctx=512, n_seq_max=3, seed=1) as llm:
        result = llm.create_completion("The best thing about mornings is", max_tokens=12, n=3, temperature=1.0)
        for choice in result["choices"]:
            print(f"choice {choice['index']}: {choice['text']!r} ({choice['finish_reason']})")

        # how likely a text is: nothing is generated, and the first token has no log-probability
        for text in ("1, 2, 3, 4", "1, 2, 3, x"):
            entries = llm.create_completion(text, max_tokens=0, echo=True, logprobs=0)["choices"][0]["logprobs"]
            print(f"score of {text!r}: {math.fsum(entries['token_logprobs'][1:]):.3f}")

        # an Event stops after the next token; llm.abort() stops at once, also within a prompt
        enough = threading.Event()
        stream = llm.create_completion("a b c", max_tokens=200, stream=True, stopping_criteria=enough)
        for number, chunk in enumerate(stream):
            last = chunk
            if number == 5:
                enough.set()
        print("stopped:", last["choices"][0]["finish_reason"], last["usage"]["completion_tokens"], "tokens")

        asyncio.run(tasks(llm))


async def tasks(llm: Llama) -> None:
    requests = [llm.acreate_completion(prompt, max_tokens=8) for prompt in ("red, green,", "one, two,")]
    for result in await asyncio.gather(*requests):
        print("task:", result["choices"][0]["text"])


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else str(pull("smollm2-135m")))
