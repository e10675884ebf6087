"""``python -m holdfast``: the command line."""

from holdfast.cli.app import main

main()
