"""`llamacy generate`: continue a text."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from llamacy.cli.common import (
    EXIT_INTERRUPTED,
    add_compute_options,
    add_model_option,
    compute_params,
    integer,
    number,
    read_text,
    resolve_model,
    show_native_log,
)

if TYPE_CHECKING:
    from llamacy import Llama
    from llamacy.grammar import Grammar


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
    parser.add_argument("prompt", nargs="?", metavar="PROMPT", help="the text; - or nothing: standard input")
    parser.add_argument("-f", "--file", type=Path, metavar="FILE", help="read the text from a file")
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
    sampling = parser.add_argument_group("sampling")
    sampling.add_argument(
        "--temp",
        type=number(0),
        default=0.8,
        metavar="X",
        help="temperature, 0: most likely token (default: 0.8)",
    )
    sampling.add_argument(
        "--top-k",
        type=integer(0),
        default=40,
        metavar="N",
        help="of the N most likely tokens, 0: all (default: 40)",
    )
    sampling.add_argument(
        "--top-p",
        type=number(0, 1),
        default=0.95,
        metavar="X",
        help="of the tokens with this share (default: 0.95)",
    )
    sampling.add_argument(
        "--min-p",
        type=number(0, 1),
        default=0.05,
        metavar="X",
        help="no token less likely than this share of the likeliest (default: 0.05)",
    )
    sampling.add_argument(
        "-s",
        "--seed",
        type=integer(-1, 2**32 - 2),
        default=-1,
        metavar="N",
        help="-1: drawn anew (default: -1)",
    )
    constraint = parser.add_argument_group("grammar (one of these)").add_mutually_exclusive_group()
    constraint.add_argument("--grammar-file", type=Path, metavar="FILE", help="write what a GBNF grammar allows")
    constraint.add_argument(
        "-j", "--json-schema", metavar="SCHEMA", help="write JSON that a JSON Schema allows, {}: any JSON"
    )
    constraint.add_argument("--json-schema-file", type=Path, metavar="FILE", help="the same, with the schema in a file")
    constraint.add_argument(
        "--regex", metavar="PATTERN", help="write what a regular expression (ECMAScript) matches as a whole"
    )
    add_compute_options(parser)
    parser.add_argument(
        "-v",
        "--verbose",
        action="store_true",
        help="llama.cpp's log, the seed and the speed on standard error",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    prompt = read_text(arguments.prompt, arguments.file)
    if arguments.prompt in {None, "-"}:
        prompt = prompt.removesuffix(b"\n").removesuffix(b"\r")
    grammar = _grammar(arguments)
    path = resolve_model(arguments.model)
    from llamacy import Llama

    show_native_log(arguments.verbose)
    with Llama(path, no_perf=not arguments.verbose, **compute_params(arguments)) as llm:
        if arguments.echo:
            _write(prompt.decode("utf-8", "replace"))
        chunks = llm.create_completion(
            prompt,
            max_tokens=arguments.max_tokens,
            temperature=arguments.temp,
            top_k=arguments.top_k,
            top_p=arguments.top_p,
            min_p=arguments.min_p,
            seed=arguments.seed,
            stop=arguments.stop,
            stream=True,
            grammar=grammar,
        )
        for chunk in chunks:
            choice = chunk["choices"][0]
            _write(choice["text"])
            reason, seed = choice["finish_reason"], chunk["seed"]
        _write("\n")
        if grammar is not None and reason == "length":
            limit = f"after {arguments.max_tokens} tokens (--max-tokens)" if arguments.max_tokens else "by the context"
            print(f"llamacy: cut off {limit}: the text is not a whole one of the grammar", file=sys.stderr)
        if arguments.verbose:
            _report(llm, f"seed {seed}, finish reason {reason}")
    return EXIT_INTERRUPTED if reason == "abort" else 0


def _grammar(arguments: argparse.Namespace) -> Grammar | None:
    """Return the grammar that the options ask for."""
    given = (arguments.grammar_file, arguments.json_schema, arguments.json_schema_file, arguments.regex)
    if all(value is None for value in given):
        return None
    from llamacy.grammar import Grammar

    if arguments.grammar_file is not None:
        return Grammar.from_file(arguments.grammar_file)
    if arguments.regex is not None:
        return Grammar.from_regex(arguments.regex)
    schema = arguments.json_schema
    if schema is None:
        schema = arguments.json_schema_file.read_text(encoding="utf-8")
    return Grammar.from_json_schema(schema)


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _report(llm: Llama, first: str) -> None:
    from llamacy.core.perf import perf_context

    perf = perf_context(llm.context)
    print(f"llamacy: {first}", file=sys.stderr)
    for what, n_tokens, t_ms in (
        ("prompt", perf.n_p_eval, perf.t_p_eval_ms),
        ("generation", perf.n_eval, perf.t_eval_ms),
    ):
        speed = f"{n_tokens / t_ms * 1e3:.1f} tokens/s" if t_ms > 0 else "not measured"
        print(f"llamacy: {what}: {n_tokens} tokens in {t_ms:.1f} ms, {speed}", file=sys.stderr)
