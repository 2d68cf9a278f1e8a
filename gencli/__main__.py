"""Entry point of the console script and of `python -m gencli`."""

import signal

from gencli.cli import app


def main() -> int:
    """Run the command line and return its exit code."""
    code = app.main()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C can no longer change the exit code
    return code


if __name__ == "__main__":
    raise SystemExit(main())
