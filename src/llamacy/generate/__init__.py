"""How text is made: options, requests and streams over the core's sequences and scheduler."""
