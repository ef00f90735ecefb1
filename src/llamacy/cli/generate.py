"""`llamacy generate`: continue a text."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from llamacy.cli.adapters import add_adapter_options, apply_adapters
from llamacy.cli.common import (
    COMPUTE_NAMES,
    EXIT_INTERRUPTED,
    add_compute_options,
    add_model_option,
    add_text,
    compute_params,
    integer,
    read_text,
    resolve_model,
    show_native_log,
)
from llamacy.cli.purpose import check_generates, check_reads, loaded
from llamacy.cli.sampling import add_grammar_options, add_sampling_options, given_grammar, sampling_params

if TYPE_CHECKING:
    from llamacy import Llama

# Parameters of `Llama` and its requests that errors may speak of, and what to say here.
REQUEST_NAMES = {
    **COMPUTE_NAMES,
    ", let it be shortened (truncate_prompt=True)": "",
    "max_tokens": "--max-tokens",
    "in stop": "in --stop",
}


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "generate",
        help="continue a text",
        description=(
            "Continue a text, and write what comes as it comes. The text is given to the model as it is, "
            "without a chat template; one line feed at the end of a file or of standard input is left out."
        ),
        allow_abbrev=False,
    )
    add_text(parser, "PROMPT")
    add_model_option(parser)
    parser.add_argument(
        "-n",
        "--max-tokens",
        "--n-predict",
        type=integer(-1),
        default=128,
        metavar="N",
        help="most tokens to generate, -1: until the context is full (default: 128)",
    )
    parser.add_argument("--stop", action="append", metavar="TEXT", help="end before this text; may be repeated")
    parser.add_argument("--echo", action="store_true", help="write the prompt, too")
    add_sampling_options(parser, temperature=0.8)
    add_grammar_options(parser)
    add_adapter_options(parser)
    add_compute_options(parser)
    parser.add_argument(
        "-v",
        "--verbose",
        action="store_true",
        help="llama.cpp's log, the seed and the speed on standard error",
    )
    parser.set_defaults(run=run, named=REQUEST_NAMES)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    argument = arguments.text if arguments.prompt is None else arguments.prompt
    prompt = read_text(argument, arguments.file)
    if argument in {None, "-"}:
        prompt = prompt.removesuffix(b"\n").removesuffix(b"\r")
    grammar = given_grammar(arguments)
    path = resolve_model(arguments.model)
    from llamacy import Llama

    show_native_log(arguments.verbose)
    with loaded(Llama, path, no_perf=not arguments.verbose, **compute_params(arguments)) as llm:
        check_generates(llm, path)
        check_reads(llm.model, path)
        apply_adapters(llm, arguments)
        if arguments.echo:
            write_text(prompt.decode("utf-8", "replace"))
        chunks = llm.create_completion(
            prompt,
            max_tokens=arguments.max_tokens,
            stop=arguments.stop,
            stream=True,
            grammar=grammar,
            **sampling_params(arguments),
        )
        for chunk in chunks:
            choice = chunk["choices"][0]
            write_text(choice["text"])
            reason, seed = choice["finish_reason"], chunk["seed"]
        write_text("\n")
        if grammar is not None and reason == "length":
            limit = f"after {arguments.max_tokens} tokens (--max-tokens)" if arguments.max_tokens else "by the context"
            print(f"llamacy: cut off {limit}: the text is not a whole one of the grammar", file=sys.stderr)
        if arguments.verbose:
            report(llm, f"seed {seed}, finish reason {reason}")
    return EXIT_INTERRUPTED if reason == "abort" else 0


def write_text(text: str) -> None:
    """Write text at once."""
    sys.stdout.write(text)
    sys.stdout.flush()


def report(llm: Llama, first: str) -> None:
    """Say on standard error how a request ended, and how fast it was."""
    from llamacy.core.perf import perf_context

    perf = perf_context(llm.context)
    print(f"llamacy: {first}", file=sys.stderr)
    for what, n_tokens, t_ms in (
        ("prompt", perf.n_p_eval, perf.t_p_eval_ms),
        ("generation", perf.n_eval, perf.t_eval_ms),
    ):
        speed = f"{n_tokens / t_ms * 1e3:.1f} tokens/s" if t_ms > 0 else "not measured"
        print(f"llamacy: {what}: {n_tokens} tokens in {t_ms:.1f} ms, {speed}", file=sys.stderr)
