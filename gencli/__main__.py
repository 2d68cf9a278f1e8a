"""Entry point of the console script and of `python -m gencli`."""

import signal

from gencli.cli import app

__all__ = ["main"]


def main() -> int:
    """Run the command line and settle its exit code: a Ctrl-C while the process ends changes nothing."""
    code = app.main()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return code


if __name__ == "__main__":
    raise SystemExit(main())
