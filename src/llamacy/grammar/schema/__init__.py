"""JSON Schema compiled to a grammar.

What a schema says is enforced exactly, or refused with the place and the reason.
"""

from llamacy.grammar.schema.compiler import compile_schema
from llamacy.grammar.schema.policy import Policy

__all__ = ["Policy", "compile_schema"]
