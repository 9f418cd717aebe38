"""What `import kvcache` costs: nothing that is not used."""

from __future__ import annotations

import subprocess
import sys

import kvcache
import pytest


def run(script: str) -> None:
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


def test_what_chooses_is_imported_when_it_is_asked_for() -> None:
    run(
        "import sys, kvcache\n"
        "assert not any(name.startswith(('kvcache.routing', 'kvcache.registry', 'numpy'))"
        " for name in sys.modules)\n"
        "assert kvcache.Router is kvcache.Router\n"
        "assert 'kvcache.routing.router' in sys.modules\n"
        "assert 'numpy' not in sys.modules\n"
    )


def test_every_public_name_is_there() -> None:
    run("from kvcache import *; Router, CacheAware, RoundRobin, Decision, Registry, Directory")
    for name in kvcache.__all__:
        assert getattr(kvcache, name) is not None


def test_other_names_are_refused_as_ever() -> None:
    with pytest.raises(AttributeError, match="module 'kvcache' has no attribute 'nothing'"):
        getattr(kvcache, "nothing")  # noqa: B009
