from llamacy.core.context import Context
from llamacy.core.sampler import SamplerChain

__all__ = ["attach", "detach"]

def attach(context: Context, seq_id: int, chain: SamplerChain) -> None: ...
def detach(context: Context, seq_id: int) -> None: ...
