"""Values written as nested tags, with a word before each tag."""

from __future__ import annotations

import re

from llamacy.chat.output.values import JSON, MAX_DEPTH, convert, quote


def nested_value(text: str, prefix: str) -> str | None:
    """Return the JSON text for a value that holds tags: an array of what stands in ``item``, or else an object.

    Parameters
    ----------
    text
        What was written.
    prefix
        What stands before each tag.

    Returns
    -------
    str or None
        None when there are no tags in it, or when they don't fit together.
    """
    tags = [*re.finditer(re.escape(prefix) + r"<(/?)([^<>]{1,200})>", text)]
    if not tags:
        return None
    # per open tag: its name, and what stands in it
    open_tags: list[tuple[str, list[tuple[str, str]]]] = [("", [])]
    end = 0
    is_leaf = False
    for tag in tags:
        between = text[end : tag.start()]
        end = tag.end()
        if not tag[1]:
            if between.strip() or len(open_tags) > MAX_DEPTH:
                return None
            open_tags.append((tag[2], []))
            is_leaf = True
            continue
        name, parts = open_tags.pop()
        if name != tag[2] or not open_tags or (not is_leaf and between.strip()):
            return None
        value = (convert(between.strip(), JSON) or f'"{quote(between)}"') if is_leaf else _join(parts)
        open_tags[-1][1].append((name, value))
        is_leaf = False
    if len(open_tags) > 1 or text[end:].strip():
        return None
    return _join(open_tags[0][1])


def _join(parts: list[tuple[str, str]]) -> str:
    if all(name == "item" for name, _ in parts):
        return "[" + ", ".join(value for _, value in parts) + "]"
    return "{" + ", ".join(f'"{quote(name)}": {value}' for name, value in parts) + "}"
