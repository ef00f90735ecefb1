from llamacy.core.vocab import Vocab

__all__ = ["end_tokens"]

def end_tokens(vocab: Vocab) -> tuple[int, ...]: ...
