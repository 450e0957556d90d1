"""`python -m holdfast`, the same as the command `holdfast`."""

from holdfast.cli.commands import main

if __name__ == "__main__":
    main()
