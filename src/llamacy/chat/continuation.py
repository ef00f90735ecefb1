"""Prompts that leave the last message open, so that the model goes on with it."""

from __future__ import annotations

from typing import Any

from llamacy.errors import ChatTemplateError

# the space at its end tells whether the template trims the message
_MARK = "CONTINUE_FINAL_MESSAGE_TAG "


def mark_final_message(chat: list[dict[str, Any]], source: str) -> str:
    """Put a mark behind the text of the last message, and return that text.

    Raises
    ------
    ChatTemplateError
        The last message has no text that can be continued, or its text is followed by tool calls.
    """
    if chat[-1].get("tool_calls"):
        raise ChatTemplateError(
            f"continue_final_message: messages[{len(chat) - 1}] has tool calls, which can't be gone on with"
        )
    content = chat[-1].get("content")
    if content is None or "content" not in source:
        raise ChatTemplateError(f"continue_final_message: messages[{len(chat) - 1}] has no content to continue")
    if isinstance(content, str):
        chat[-1]["content"] = content + _MARK
        return content
    parts = content if isinstance(content, (list, tuple)) else ()
    for part in reversed(parts):
        if isinstance(part, dict) and isinstance(part.get("text"), str):
            text: str = part["text"]
            part["text"] = text + _MARK
            return text
    raise ChatTemplateError(f"continue_final_message: messages[{len(chat) - 1}] has no text to continue")


def cut_after_final_message(prompt: str, text: str) -> str:
    """Return a prompt without what the template writes behind the last message.

    Raises
    ------
    ChatTemplateError
        The template leaves the message out or changes it.
    """
    at = prompt.rfind(_MARK.strip())
    if at < 0 or text.strip() not in prompt:
        raise ChatTemplateError(
            "continue_final_message: the chat template leaves out or changes the text of the last message"
        )
    if prompt.startswith(_MARK, at):
        return prompt[:at]
    return prompt[:at].rstrip()
