"""What a response says of its request: an id, what was asked for, and what it took."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from llamacy.generate import responses
    from llamacy.generate.run import Run


def head(run: Run, kind: str, prefix: str, model_name: str) -> dict[str, Any]:
    """Return what a response and all its chunks begin with.

    Parameters
    ----------
    run
        What generates.
    kind
        What OpenAI calls such a response.
    prefix
        What its id begins with.
    model_name
        Name that it shows.
    """
    job = run.choices[0].job
    return {
        "id": f"{prefix}-{os.urandom(16).hex()}",
        "object": kind,
        "created": int(time.time()),
        "model": model_name,
        "seed": job.options.drawn_seed,
        "max_tokens": job.max_tokens,
    }


def costs(run: Run, n_truncated: int = 0) -> dict[str, Any]:
    """Return the tokens that a run took, as `usage`, and where its time went, as `timings`."""
    n_prompt, n_cached, n_generated = run.counts()
    details: responses.PromptTokensDetails = {"cached_tokens": n_cached}
    if n_truncated:
        details["truncated_tokens"] = n_truncated
    usage: responses.Usage = {
        "prompt_tokens": n_prompt,
        "completion_tokens": n_generated,
        "total_tokens": n_prompt + n_generated,
        "prompt_tokens_details": details,
    }
    timings: responses.Timings = {
        "prompt_n": n_prompt - n_cached,
        "prompt_ms": run.prompt_s * 1e3,
        "predicted_n": n_generated,
        "predicted_ms": run.generation_s * 1e3,
    }
    return {"usage": usage, "timings": timings}
