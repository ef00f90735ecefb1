"""Chats: prompts out of messages, and answers, reasoning and tool calls out of what a model writes."""
