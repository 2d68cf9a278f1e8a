"""Entry point of the console script and of `python -m gencli`."""


def main() -> None:
    """Run the command line."""
    raise SystemExit(0)


if __name__ == "__main__":
    main()
