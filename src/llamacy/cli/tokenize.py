"""`llamacy tokenize`: how a model cuts a text into tokens."""

from __future__ import annotations

import argparse
import json

from llamacy.cli.common import add_model_option, add_text, print_table, read_text, resolve_model, show_native_log
from llamacy.cli.purpose import check_reads, loaded


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "tokenize",
        help="show the tokens of a text",
        description=(
            "Show how a model cuts a text into tokens: ids and pieces, one token a line. The text is taken "
            "as it is, a "
            "line feed at its end included. Only the vocabulary of the model is loaded."
        ),
        allow_abbrev=False,
    )
    add_text(parser, "TEXT")
    add_model_option(parser)
    parser.add_argument(
        "--no-bos",
        action="store_true",
        help="leave out the tokens that the model puts around a text (BOS, EOS)",
    )
    parser.add_argument(
        "--no-special",
        action="store_true",
        help="take the spelling of special tokens, as <|im_end|>, as plain text",
    )
    shape = parser.add_mutually_exclusive_group()
    shape.add_argument("--ids", action="store_true", help="print the ids only, as a list")
    shape.add_argument("--count", action="store_true", help="print the number of tokens only")
    shape.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    text = read_text(arguments.text if arguments.prompt is None else arguments.prompt, arguments.file)
    path = resolve_model(arguments.model)
    from llamacy import Model

    show_native_log(False)
    with loaded(Model, path, vocab_only=True) as model:
        check_reads(model, path)
        vocab = model.vocab
        tokens = list(vocab.tokenize(text, add_special=not arguments.no_bos, parse_special=not arguments.no_special))
        pieces = [vocab.piece(token) for token in tokens]
    if arguments.count:
        print(len(tokens))
    elif arguments.ids:
        print(tokens)
    elif arguments.json:
        entries = [_entry(token, piece) for token, piece in zip(tokens, pieces, strict=True)]
        print(json.dumps({"n_tokens": len(tokens), "tokens": entries}, ensure_ascii=False))
    else:
        print_table([(str(token).rjust(7), _show(piece)) for token, piece in zip(tokens, pieces, strict=True)])
        print(f"{len(tokens)} tokens, {len(text)} bytes")
    return 0


def _show(piece: bytes) -> str:
    # A piece may end in the middle of a character.
    try:
        return repr(piece.decode())
    except UnicodeDecodeError:
        return repr(piece)


def _entry(token: int, piece: bytes) -> dict[str, object]:
    entry: dict[str, object] = {"id": token, "bytes": piece.hex()}
    try:
        entry["piece"] = piece.decode()
    except UnicodeDecodeError:
        entry["piece"] = None
    return entry
