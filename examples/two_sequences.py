"""Continue two texts at once: two sequences of one context, one batch a step.

python examples/two_sequences.py [MODEL.gguf]
"""

import sys

from llamacy import Batch, Context, Model, Sampler, SamplerChain
from llamacy.starter import pull

TEXTS = ("1, 2, 3, 4, 5, 6, 7,", "a b c d e f g h i j")
N_TOKENS = 12


def main(path: str) -> None:
    with (
        Model(path) as model,
        Context(model, n_ctx=512, n_seq_max=len(TEXTS)) as context,
        Batch(512) as batch,
        SamplerChain([Sampler.greedy()]) as chain,
    ):
        prompts = [model.vocab.tokenize(text) for text in TEXTS]
        results: list[list[int]] = [[] for _ in TEXTS]
        for seq_id, prompt in enumerate(prompts):
            batch.extend(prompt, 0, (seq_id,), logits="last")
        rows = [len(prompts[0]) - 1, len(prompts[0]) + len(prompts[1]) - 1]
        for _ in range(N_TOKENS):
            context.decode(batch)
            tokens = [chain.sample(context, row) for row in rows]
            batch.clear()
            for seq_id, token in enumerate(tokens):
                position = len(prompts[seq_id]) + len(results[seq_id])
                batch.add(token, position, (seq_id,), logits=True)
                results[seq_id].append(token)
            rows = [0, 1]
        for text, result in zip(TEXTS, results, strict=True):
            print(text, "→", model.vocab.detokenize(result).decode(errors="replace"))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else str(pull("smollm2-135m")))
