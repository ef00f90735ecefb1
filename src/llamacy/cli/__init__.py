"""The command line `llamacy`: one module a command, native code only where a command needs it."""
