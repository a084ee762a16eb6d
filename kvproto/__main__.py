"""`python -m kvproto`: the command line where no script is installed."""

from kvproto.cli import main

raise SystemExit(main())
