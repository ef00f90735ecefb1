"""`llamacy bench`: how fast prompts are read and tokens made, and what `Llama` adds to the core."""

from __future__ import annotations

import argparse
import random
import statistics
import time
from typing import TYPE_CHECKING

from llamacy.cli.common import (
    COMPUTE_NAMES,
    CommandError,
    add_compute_options,
    add_model_option,
    compute_params,
    counted,
    integer,
    print_table,
    resolve_model,
    show_native_log,
)
from llamacy.cli.purpose import check_generates, loaded

if TYPE_CHECKING:
    from llamacy import Context, Llama


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "bench",
        help="measure speed",
        description=(
            "Measure how fast a prompt is read and how fast tokens are made, with greedy sampling: through "
            "Llama.generate, and with a bare loop of Context.decode and SamplerChain.sample on the same "
            "model. The runs alternate; medians are shown."
        ),
        allow_abbrev=False,
    )
    add_model_option(parser)
    parser.add_argument(
        "-p",
        "--n-prompt",
        type=integer(1),
        default=256,
        metavar="N",
        help="tokens of the prompt (default: 256)",
    )
    parser.add_argument(
        "-n", "--n-gen", type=integer(1), default=64, metavar="N", help="tokens to generate (default: 64)"
    )
    parser.add_argument(
        "-r", "--repetitions", type=integer(1), default=3, metavar="N", help="runs of each kind (default: 3)"
    )
    add_compute_options(parser)
    parser.add_argument("-v", "--verbose", action="store_true", help="llama.cpp's log on standard error")
    parser.set_defaults(run=run, named=COMPUTE_NAMES)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    path = resolve_model(arguments.model)
    from llamacy import Context, Llama

    show_native_log(arguments.verbose)
    params = compute_params(arguments)
    needed = arguments.n_prompt + arguments.n_gen + 1
    n_ctx = params.setdefault("n_ctx", needed) or needed
    if n_ctx < needed:
        raise CommandError(
            f"--ctx-size {n_ctx} has no room for {needed} tokens: give fewer tokens or a larger context."
        )
    with loaded(Llama, path, **params) as llm:
        check_generates(llm, path)
        prompt = random_tokens(llm.n_vocab(), arguments.n_prompt)
        context_params = {key: value for key, value in params.items() if key not in {"n_gpu_layers"}}
        through_llama: list[tuple[float, float]] = []
        bare: list[tuple[float, float]] = []
        with Context(llm.model, **context_params) as context:
            # one run each to bring weights and buffers into place
            run_llama(llm, prompt, 1)
            run_core(context, prompt, 1)
            for _ in range(arguments.repetitions):
                through_llama.append(run_llama(llm, prompt, arguments.n_gen))
                bare.append(run_core(context, prompt, arguments.n_gen))
        threads = counted(llm.context.n_threads, "thread")
        print(f"{llm.model.description}, {llm.model.size_bytes / 1e6:.0f} MB, {threads}")
    rows = []
    for column, label in ((0, f"prompt {arguments.n_prompt}"), (1, f"generation {arguments.n_gen}")):
        first, second = (statistics.median(run[column] for run in runs) for runs in (through_llama, bare))
        rows.append((label, f"{first:.1f}", f"{second:.1f}", f"{first / second:.3f}"))
    print_table(rows, ("TOKENS", "LLAMA tok/s", "CORE tok/s", "RATIO"))
    return 0


def random_tokens(n_vocab: int, n_tokens: int) -> list[int]:
    """Return a prompt that is the same every time."""
    generator = random.Random(n_vocab)
    return [generator.randrange(n_vocab) for _ in range(n_tokens)]


def run_llama(llm: Llama, prompt: list[int], n_tokens: int) -> tuple[float, float]:
    """Generate through `Llama.generate`; return tokens per second of the prompt and of the generation."""
    # the memory has the prompt of the run before, which would not be computed again
    llm.reset()
    begin = time.perf_counter()
    tokens = llm.generate(prompt, max_tokens=n_tokens + 1, temperature=0)
    next(tokens)
    middle = time.perf_counter()
    count = sum(1 for _ in tokens)
    end = time.perf_counter()
    return len(prompt) / (middle - begin), count / (end - middle)


def run_core(context: Context, prompt: list[int], n_tokens: int) -> tuple[float, float]:
    """Generate with the classes of the core alone, as `run_llama` does."""
    from llamacy import Batch, Sampler, SamplerChain

    is_eog = context.model.vocab.is_eog
    count = 0
    with SamplerChain([Sampler.greedy()]) as chain, Batch(max(context.n_batch, 1)) as batch:
        if context.memory is not None:
            context.memory.clear()
        begin = time.perf_counter()
        for start in range(0, len(prompt), context.n_batch):
            batch.clear()
            batch.extend(prompt[start : start + context.n_batch], start)
            context.decode(batch)
        token = chain.sample(context, -1)
        middle = time.perf_counter()
        position = len(prompt)
        while count < n_tokens and not is_eog(token):
            batch.clear()
            batch.add(token, position, logits=True)
            context.decode(batch)
            token = chain.sample(context, -1)
            position += 1
            count += 1
        end = time.perf_counter()
    return len(prompt) / (middle - begin), count / (end - middle)
