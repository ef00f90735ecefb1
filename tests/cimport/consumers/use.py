"""Runs both consumers on the model named first; prints what they computed as JSON."""

import array
import json
import sys
from pathlib import Path

import raw
import through_classes

import llamacy

path = sys.argv[1]
prompt = array.array("i", json.loads(sys.argv[2]))
model = llamacy.Model(path)
context = llamacy.Context(model, n_ctx=256, n_threads=1, n_threads_batch=1)
chain = llamacy.SamplerChain([llamacy.Sampler.greedy()])
batch = llamacy.Batch(64)
out = array.array("i", [0] * 12)
n, total = through_classes.generate(context, chain, batch, prompt, out)
holder = through_classes.Holder(model, context)
through_classes.accept(chain, 5)
errors = []
for failing in (
    lambda: through_classes.decode_badly(context, batch),
    lambda: through_classes.Holder(None, context),
    lambda: through_classes.generate(model, chain, batch, prompt, out),
):
    try:
        failing()
    except Exception as error:
        errors.append(type(error).__name__)
context.close()
try:
    through_classes.generate(context, chain, batch, prompt, out)
except Exception as error:
    errors.append(type(error).__name__)
# the backends are those that llamacy has loaded
n_vocab, last = raw.sum_logits(str(path).encode(), prompt)
print(
    json.dumps(
        {
            "generated": list(out[:n]),
            "total": total,
            "facts": holder.facts(),
            "errors": errors,
            "raw": [n_vocab, last],
            "home": str(Path(llamacy.__file__).parent),
        }
    )
)
