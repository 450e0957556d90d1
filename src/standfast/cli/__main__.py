"""`python -m standfast.cli`."""

from standfast.cli import main

if __name__ == "__main__":
    main()
