"""Entry point of the console script and of `python -m gencli`."""

from gencli.cli.app import main

__all__ = ["main"]

if __name__ == "__main__":
    raise SystemExit(main())
