"""Snapshots of what sequences hold, the stores that keep them, and checkpoints inside a live context."""
