"""Which chat template a model is asked with."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from llamacy.errors import ChatTemplateError

if TYPE_CHECKING:
    from llamacy.chat.template import ChatTemplate
    from llamacy.core.model import Model
    from llamacy.types import StrPath

_KEY = "tokenizer.chat_template"
_TOOL_USE = "tool_use"


class Templates:
    """The chat templates of a model, and the one to use.

    Parameters
    ----------
    model
        The model.
    chat_format
        Name of a format to use instead of what the model has (see `llamacy.chat.classic`).
    chat_template
        A template to use instead: its Jinja source, or the path of a file that has it.
    name
        Which of the model's named templates to use.
    no_text
        Why the model generates no text, or nothing.

    Raises
    ------
    ChatTemplateError
        The template is broken.
    TypeError, ValueError
        More than one is asked for, or there is none of that name.
    FileNotFoundError
        There is no such file.
    """

    def __init__(
        self,
        model: Model,
        *,
        chat_format: str | None,
        chat_template: StrPath | None,
        name: str | None,
        no_text: str = "",
    ) -> None:
        given = [
            key
            for key, value in (
                ("chat_format", chat_format),
                ("chat_template", chat_template),
                ("chat_template_name", name),
            )
            if value is not None
        ]
        if len(given) > 1:
            raise TypeError(f"{' and '.join(given)} each say which template to use; give one of them")
        self._model = model
        self._no_text = no_text
        self._tokens = _special_tokens(model)
        self._named: dict[str, ChatTemplate] = {}
        self._chosen: ChatTemplate | None = None
        if chat_format is not None:
            self._chosen = self._classic(chat_format)
        elif chat_template is not None:
            self._chosen = self._made(_source(chat_template), "given")
        elif name is not None:
            self._chosen = self.named(name)

    @property
    def names(self) -> list[str]:
        """Names of the templates that the model has beside its ordinary one."""
        prefix = f"{_KEY}."
        return sorted(key.removeprefix(prefix) for key in self._model.metadata if key.startswith(prefix))

    def named(self, name: str) -> ChatTemplate:
        """Return a named template of the model.

        Raises
        ------
        ValueError
            The model has none of that name.
        """
        source = self._model.metadata.get(f"{_KEY}.{name}")
        if source is None:
            known = ", ".join(self.names) or "none"
            raise ValueError(f"the model has no chat template named {name!r}; named ones: {known}")
        if name not in self._named:
            self._named[name] = self._made(source, name)
        return self._named[name]

    def template(self, *, for_tools: bool = False) -> ChatTemplate:
        """Return the template of a request.

        Parameters
        ----------
        for_tools
            The request has tools: a template of the model that is made for them is taken before its ordinary one.

        Raises
        ------
        ChatTemplateError
            The model has none, or it is broken.
        """
        if self._chosen is not None:
            return self._chosen
        if for_tools and _TOOL_USE in self.names:
            return self.named(_TOOL_USE)
        if "" not in self._named:
            source = self._model.metadata.get(_KEY)
            if not source:
                raise ChatTemplateError(
                    f"the model has no chat template: {self._no_text}"
                    if self._no_text
                    else "the model has no chat template: say which format it was trained on, "
                    "Llama(…, chat_format='chatml') or Llama(…, chat_template=path), or continue a text of your own "
                    "with create_completion"
                )
            self._named[""] = self._made(source, "the model's")
        return self._named[""]

    def _classic(self, chat_format: str) -> ChatTemplate:
        from llamacy.chat.classic import chat_format_names, classic_template

        if chat_format not in chat_format_names():
            from llamacy._elsewhere import chat_format_hint

            hint = chat_format_hint(chat_format)
            if hint:
                raise ValueError(f"there is no chat format {chat_format!r}; {hint}")
        bos, eos = self._tokens.get("bos_token", ""), self._tokens.get("eos_token", "")
        return classic_template(chat_format, bos_token=bos, eos_token=eos)

    def _made(self, source: str, name: str) -> ChatTemplate:
        from llamacy.chat.template import ChatTemplate

        tokens = dict(self._tokens)
        return ChatTemplate(
            source,
            bos_token=tokens.pop("bos_token", ""),
            eos_token=tokens.pop("eos_token", ""),
            special_tokens=tokens,
            name=name,
        )


def _special_tokens(model: Model) -> Mapping[str, str]:
    """Return the texts of special tokens by the names that templates know them by."""
    vocab = model.vocab
    tokens = {
        "bos_token": vocab.bos, "eos_token": vocab.eos, "pad_token": vocab.pad, "sep_token": vocab.sep,
        "mask_token": vocab.mask,
    }  # fmt: skip
    unknown = model.metadata.get("tokenizer.ggml.unknown_token_id", "")
    if unknown.isdecimal() and int(unknown) < vocab.n_tokens:
        tokens["unk_token"] = int(unknown)
    return {name: vocab.text(token) for name, token in tokens.items() if token is not None}


def _source(template: StrPath) -> str:
    if isinstance(template, str) and ("{%" in template or "{{" in template or "\n" in template):
        return template
    path = Path(template)
    if not path.is_file():
        raise FileNotFoundError(
            f"chat_template is neither Jinja (it has no {{{{ }}}} or {{% %}}) nor a file: {str(template)[:200]!r}"
        )
    return path.read_text(encoding="utf-8")
