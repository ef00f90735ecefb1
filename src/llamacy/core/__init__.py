"""The owning classes of llamacy: one noun a module, each over one native handle."""
