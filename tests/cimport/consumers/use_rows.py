"""Lets functions of `rows` rule what the model named first writes; prints what came of it as JSON."""

import gc
import json
import sys

import rows

import llamacy

prompt = json.loads(sys.argv[2])
llm = llamacy.Llama(sys.argv[1], n_ctx=64, n_threads=1, n_threads_batch=1)
letters = rows.Letters(261, 26, len(prompt) + 30)
processor, criterion = letters.processor(), letters.criterion()
seen = letters.seen
# the functions keep their data alive
del letters
gc.collect()
options = {"logits_processor": processor, "stopping_criteria": [criterion], "ignore_eos": True}
tokens = list(llm.generate(prompt, max_tokens=50, **options))
whole = llm.create_completion(prompt, max_tokens=50, **options)
stopped = llm.create_completion(prompt, max_tokens=50, stopping_criteria=rows.without_data(), ignore_eos=True)
letters = rows.Letters(261, 1, 0)
list(llm.generate(prompt, max_tokens=5, logits_processor=letters.processor()))
print(
    json.dumps(
        {
            "seen": [seen, letters.seen],
            "tokens": tokens,
            "text": whole["choices"][0]["text"],
            "reason": whole["choices"][0]["finish_reason"],
            "n_stopped": stopped["usage"]["completion_tokens"],
        }
    )
)
llm.close()
