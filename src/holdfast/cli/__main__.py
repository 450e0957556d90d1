"""`python -m holdfast.cli`."""

from holdfast.cli.commands import main

if __name__ == "__main__":
    main()
