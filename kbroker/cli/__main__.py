"""`python -m kbroker.cli` is the `kbroker` command."""

from __future__ import annotations

from kbroker.cli.main import main

main()
