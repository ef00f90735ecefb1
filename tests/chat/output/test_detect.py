"""Which format a template has."""

from __future__ import annotations

import pytest

from llamacy.chat.output import Thinking, detect, format_names, named_format
from tests.chat.output.recorded import TEMPLATES, source_of

THINK = Thinking("<think>", "</think>")
# what each vendored template was found to write, by reading it
EXPECTED: dict[str, tuple[str, Thinking | None]] = {
    "Apertus-8B-Instruct": ("apertus", Thinking("<|inner_prefix|>", "<|inner_suffix|>", has_calls=True)),
    "Apriel-1.6-15b-Thinker-fixed": (
        "apriel",
        Thinking("Here are my reasoning steps:", "[BEGIN FINAL RESPONSE]", has_calls=True),
    ),
    "Bielik-11B-v3.0-Instruct": ("hermes", THINK),
    "ByteDance-Seed-OSS": ("seed-oss", Thinking("<seed:think>", "</seed:think>")),
    "Cohere2MoE": ("command-r7b", Thinking("<|START_THINKING|>", "<|END_THINKING|>")),
    "CohereForAI-c4ai-command-r-plus-tool_use": ("command-r", None),
    "CohereForAI-c4ai-command-r7b-12-2024-tool_use": (
        "command-r7b",
        Thinking("<|START_THINKING|>", "<|END_THINKING|>"),
    ),
    "GLM-4.6": ("glm", THINK),
    "GLM-4.7-Flash": ("glm", THINK),
    "GigaChat3-10B-A1.8B": ("gigachat", None),
    "GigaChat3.1-10B-A1.8B": ("gigachat-3.1", None),
    "HuggingFaceTB-SmolLM3-3B": ("generic", THINK),
    "IFM-K2-Horizon": ("glm", Thinking("<ifm|think>", "</ifm|think>")),
    "Kimi-K2-Instruct": ("kimi-k2", None),
    "Kimi-K2-Thinking": ("kimi-k2", Thinking("<think>", "</think>", has_calls=True)),
    "Kimi-K3": ("kimi-k3", Thinking("<|open|>think<|sep|>", "<|close|>think<|sep|>")),
    "LFM2-8B-A1B": ("lfm2", None),
    "LFM2.5-8B-A1B": ("lfm2", THINK),
    "LFM2.5-Instruct": ("lfm2", THINK),
    "MiMo-VL": ("hermes", None),
    "MiniMax-M1": ("minimax-m1", None),
    "MiniMax-M2": ("minimax-m2", THINK),
    "MiniMax-M3": ("minimax-m3", Thinking("<mm:think>", "</mm:think>")),
    "Mistral-Small-3.2-24B-Instruct-2506": ("mistral-id", None),
    "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": ("qwen3-coder", THINK),
    "NVIDIA-Nemotron-Nano-v2": ("nemotron", THINK),
    "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use": ("hermes", None),
    "NousResearch-Hermes-3-Llama-3.1-8B-tool_use": ("hermes", None),
    "Qwen-QwQ-32B": ("hermes", THINK),
    "Qwen-Qwen2.5-7B-Instruct": ("hermes", None),
    "Qwen-Qwen3-0.6B": ("hermes", THINK),
    "Qwen3-Coder": ("qwen3-coder", None),
    "Qwen3.5-4B": ("qwen3-coder", THINK),
    "Reka-Edge": ("hermes", THINK),
    "Spark2.5": ("glm", THINK),
    "StepFun3.5-Flash": ("qwen3-coder", THINK),
    "deepseek-ai-DeepSeek-R1-Distill-Llama-8B": ("deepseek-r1", THINK),
    "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B": ("deepseek-r1", THINK),
    "deepseek-ai-DeepSeek-V3.1": ("deepseek-v3.1", THINK),
    "deepseek-ai-DeepSeek-V3.2": ("deepseek-v3.2", THINK),
    "deepseek-ai-DeepSeek-V4": ("deepseek-v4", THINK),
    "deepseek-ai-DeepSeek-V4-Flash-0731": ("deepseek-v4", THINK),
    "fireworks-ai-llama-3-firefunction-v2": ("firefunction", None),
    "google-gemma-2-2b-it": ("generic", None),
    "google-gemma-4-31B-it": ("gemma-4", Thinking("<|channel>thought\n", "<channel|>")),
    "google-gemma-4-31B-it-interleaved": ("gemma-4", Thinking("<|channel>thought\n", "<channel|>")),
    "google-translategemma-4b-it": ("generic", None),
    "ibm-granite-granite-3.3-2B-Instruct": ("granite", THINK),
    "ibm-granite-granite-4.0": ("hermes", None),
    "ibm-granite-granite-4.1": ("hermes", None),
    "inclusionai-ling-3.0-flash": ("glm", THINK),
    "llama-cpp-deepseek-r1": ("deepseek-r1", THINK),
    "llama-cpp-rwkv-world": ("generic", THINK),
    "llm-jp-llm-jp-4.1-8b-thinking": ("harmony", None),
    "meetkai-functionary-medium-v3.1": ("functionary-v3.1", None),
    "meetkai-functionary-medium-v3.2": ("functionary-v3.2", None),
    "meta-llama-Llama-3.1-8B-Instruct": ("llama-json", None),
    "meta-llama-Llama-3.2-3B-Instruct": ("llama-json", None),
    "meta-llama-Llama-3.3-70B-Instruct": ("llama-json", None),
    "microsoft-Phi-3.5-mini-instruct": ("generic", None),
    "mistralai-Ministral-3-14B-Reasoning-2512": ("mistral", Thinking("[THINK]", "[/THINK]")),
    "mistralai-Mistral-Nemo-Instruct-2407": ("mistral-json", None),
    "moonshotai-Kimi-K2": ("kimi-k2", None),
    "muse-glimmer": ("atem", None),
    "openai-gpt-oss-120b": ("harmony", None),
    "openbmb-MiniCPM5-1B": ("minicpm", THINK),
    "poolside-Laguna-S-2.1": ("glm", THINK),
    "poolside-Laguna-XS-2.1": ("glm", THINK),
    "poolside-Laguna-XS.2": ("glm", THINK),
    "tencent-Hy3": ("glm", Thinking("<think:opensource>", "</think:opensource>")),
    "unsloth-Apriel-1.5": ("apriel", Thinking("<thinking>", "</thinking>", has_calls=True)),
    "unsloth-mistral-Devstral-Small-2507": ("mistral", None),
    "upstage-Solar-Open-100B": ("solar", Thinking("<|think|>", "<|end|>")),
}


def test_every_vendored_template_has_an_expectation() -> None:
    assert sorted(EXPECTED) == sorted(path.stem for path in TEMPLATES.glob("*.jinja"))


@pytest.mark.parametrize("template", EXPECTED)
def test_detect_of_a_vendored_template_finds_its_format(template: str) -> None:
    found = detect(source_of(template))
    assert (found.name, found.thinking) == EXPECTED[template]


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("{{ '<|tool_call|>[' }}{{ '<|/tool_call|>' }}", "phi-4"),
        ("Write <use_mcp_tool> to use a tool.", "mirothinker"),
        ("{{ '<start_function_call>call:' }}", "function-gemma"),
        ("in the format of [func_name1(params_name1=params_value1), func_name2(params)]", "pythonic"),
        ("{% for m in messages %}{{ m.content }}{% endfor %}", "generic"),
        ("", "generic"),
    ],
)
def test_detect_of_other_sources(source: str, name: str) -> None:
    assert detect(source).name == name


def test_hint_counts_where_the_template_says_nothing() -> None:
    assert detect("", name_hint="pythonic").name == "pythonic"
    assert detect(source_of("Qwen3-Coder"), name_hint="pythonic").name == "qwen3-coder"


def test_unknown_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"'hermez'.*hermes"):
        named_format("hermez")
    with pytest.raises(ValueError, match="there are apertus"):
        detect("", name_hint="?")


def test_detect_tells_whether_the_template_shows_tools() -> None:
    assert detect(source_of("Qwen-Qwen3-0.6B")).shows_tools
    assert not detect(source_of("microsoft-Phi-3.5-mini-instruct")).shows_tools
    assert not detect(source_of("deepseek-ai-DeepSeek-V3.1")).shows_tools


def test_formats_are_values() -> None:
    first, second = (detect(source_of("Qwen-Qwen3-0.6B")) for _ in range(2))
    assert first == second
    assert hash(first) == hash(second)
    assert len({named_format(name) for name in format_names()}) == len(format_names())


def test_markers_are_the_words_that_tell_parts_apart() -> None:
    assert detect(source_of("Qwen-Qwen3-0.6B")).markers == ("<think>", "</think>", "<tool_call>", "</tool_call>")
    assert {"<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|call|>"} <= {*named_format("harmony").markers}
    assert {"[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"} <= {*named_format("mistral-id").markers}


def test_stop_has_the_words_that_end_a_turn() -> None:
    assert detect(source_of("Kimi-K3")).stop == ("<|end_of_msg|>",)
    assert detect(source_of("Qwen-Qwen3-0.6B")).stop == ()
