"""`python -m standfast.cli`."""

from standfast.cli.commands import main

if __name__ == "__main__":
    main()
