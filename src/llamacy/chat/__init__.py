"""Chats: the prompts that messages become, and what a model's answer says."""
