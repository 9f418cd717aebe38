"""`python -m kvcache` is the `kvcache` command."""

from __future__ import annotations

import sys

from kvcache.cli import main

if __name__ == "__main__":
    sys.exit(main())
