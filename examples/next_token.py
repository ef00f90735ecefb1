"""Show what a model thinks comes next: the logits as a NumPy array, without a copy.

python examples/next_token.py [MODEL.gguf [TEXT]]
"""

import sys

import numpy as np

from llamacy import Batch, Context, Model
from llamacy.starter import pull


def main(path: str, text: str) -> None:
    with Model(path) as model, Context(model, n_ctx=512) as context:
        tokens = model.vocab.tokenize(text)
        with Batch(len(tokens)) as batch:
            batch.extend(tokens, 0, logits="last")
            context.decode(batch)
        logits = np.asarray(context.logits(), dtype=np.float64)
        probabilities = np.exp(logits - logits.max())
        probabilities /= probabilities.sum()
        for token in np.argsort(-probabilities)[:8]:
            piece = model.vocab.piece(int(token)).decode(errors="replace")
            print(f"{probabilities[token]:7.2%}  {int(token):6d}  {piece!r}")


if __name__ == "__main__":
    main(
        sys.argv[1] if len(sys.argv) > 1 else str(pull("smollm2-135m")),
        sys.argv[2] if len(sys.argv) > 2 else "The capital of France is",
    )
