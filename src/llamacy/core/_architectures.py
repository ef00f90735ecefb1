"""What llama.cpp can and can't do by architecture, where it says so nowhere but in its graphs.

Names are those of ``general.architecture`` (src/llama-arch.cpp).
"""

from __future__ import annotations

# the graph looks positions up in a table of n_ctx_train rows and aborts past its end (src/models/*.cpp)
LEARNED_POSITIONS = frozenset(("bert", "gpt2", "mpt", "starcoder"))

# the graph publishes the inputs of its layers; others abort at the first decode (t_layer_inp in src/models/*.cpp)
LAYER_INPUTS = frozenset(
    (
        "bailingmoe3", "deepseek4", "gemma4", "gpt-oss", "hunyuan_vl", "k2-horizon", "lfm2", "llama", "mimo2",
        "minimax-01", "minimax-m2", "muse-glimmer", "nanbeige", "nemotron_h", "qwen3", "qwen35", "qwen35moe",
        "qwen3moe", "qwen3next", "qwen4exp",
    )
)  # fmt: skip

# … and the input of the output head as that of the layer after the last
LAYER_INPUTS_OF_HEAD = frozenset(("deepseek4", "mimo2", "nemotron_h"))

# the graph produces nextn rows; others accept the switch and hand out zeros (t_h_nextn in src/models/*.cpp)
NEXTN_ROWS = frozenset(
    (
        "bailingmoe3", "cohere2moe", "deepseek2", "deepseek32", "deepseek4", "dflash", "eagle3", "gemma4",
        "gemma4-assistant", "glm-dsa", "glm4moe", "glm5-next", "gpt-oss", "hy_v3", "mimo2", "nemotron_h",
        "nemotron_h_moe", "qwen35", "qwen35moe", "qwen3next", "qwen4exp", "step35",
    )
)  # fmt: skip

# draft models whose features go through llama_encode, although they count as decoders
DRAFT_ENCODERS = frozenset(("eagle3", "dflash"))
