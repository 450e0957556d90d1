"""`python -m holdfast.cli`."""

from holdfast.cli.commands import main

main()
