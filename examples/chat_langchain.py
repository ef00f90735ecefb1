"""A chat model for LangChain: pip install langchain-core

python examples/chat_langchain.py [MODEL.gguf]
"""

import json
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage, ToolMessage
from langchain_core.messages import convert_to_openai_messages as to_openai
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.utils.function_calling import convert_to_openai_tool

from llamacy import Llama
from llamacy.starter import pull


class ChatLlamacy(BaseChatModel):
    """A `Llama` as LangChain's chat model: answers, streams and tools."""

    llm: Any
    max_tokens: int = 128
    temperature: float = 0.0

    @property
    def _llm_type(self) -> str:
        return "llamacy"

    def _ask(self, messages: list[BaseMessage], **options: Any) -> Any:
        options = {"max_tokens": self.max_tokens, "temperature": self.temperature, **options}
        return self.llm.create_chat_completion(to_openai(messages), **options)

    def _generate(
        self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **more: Any
    ) -> ChatResult:
        del run_manager  # LangChain tells its callbacks of the tokens by itself
        choice = self._ask(messages, stop=stop, **more)["choices"][0]
        calls = [
            {"id": call["id"], "name": call["function"]["name"], "args": json.loads(call["function"]["arguments"])}
            for call in choice["message"].get("tool_calls", [])
        ]
        message = AIMessage(choice["message"]["content"] or "", tool_calls=calls)
        return ChatResult(generations=[ChatGeneration(message=message)])

    def _stream(
        self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **more: Any
    ) -> Iterator[ChatGenerationChunk]:
        del run_manager
        for chunk in self._ask(messages, stop=stop, stream=True, **more):
            delta = chunk["choices"][0]["delta"]
            calls = [
                {"index": call["index"], "id": call.get("id"), "type": "tool_call_chunk"}
                | {"name": call["function"].get("name"), "args": call["function"]["arguments"]}
                for call in delta.get("tool_calls", [])
            ]
            message = AIMessageChunk(delta.get("content") or "", tool_call_chunks=calls)
            yield ChatGenerationChunk(message=message)

    def bind_tools(self, tools: Sequence[Any], **options: Any) -> Any:
        return self.bind(tools=[convert_to_openai_tool(tool) for tool in tools], **options)


def get_population(city: str) -> str:
    """Tell how many people live in a city."""
    return f"In {city} there live 2,746,984 people."


def main(path: str) -> None:
    with Llama(path, n_ctx=1024) as llm:
        chat = ChatLlamacy(llm=llm)
        print("answer:", chat.invoke("What is 2+2?").content)
        print("stream:", end=" ")
        for piece in chat.stream("Name a planet."):
            print(piece.content, end="", flush=True)
        print()
        question = HumanMessage("How many people live in Rome?")
        called = chat.bind_tools([get_population], tool_choice="required", parallel_tool_calls=False).invoke([question])
        (call,) = called.tool_calls
        print("call:", call["name"], call["args"])
        result = ToolMessage(get_population(**call["args"]), tool_call_id=call["id"])
        print("answer:", chat.invoke([question, called, result]).content)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else str(pull("smollm2-135m")))
