"""The one exception of the build tools."""

from __future__ import annotations


class BuildError(Exception):
    """A build step failed; the message says what failed, with which value, and what to do about it."""
