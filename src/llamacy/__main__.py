"""`python -m llamacy`: the command line."""

from llamacy.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
