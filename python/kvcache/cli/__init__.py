"""The `kvcache` command."""

from kvcache.cli.main import main

__all__ = ["main"]
