"""Measures everything and writes the tables of `bench/README.md` and the plots of `bench/plots`.

    python bench/report.py                all; the first time builds the peers: about 4 minutes more on 2 cores; needs 8 GB
    python bench/report.py --smoke        proves in seconds that the harness works: tiny, no peers, writes nothing
    python bench/report.py --goals        only what is promised, as a table on stdout: 2 minutes
    python bench/report.py --simulation   only the simulated fleet, into the README and docs/plots: 2 minutes
    python bench/report.py --from FILE    tables and plots anew from the figures of an earlier run

Raw figures stay in `$KVCACHE_BENCH_DIR/figures.json` (`target/bench`).
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import plots
import records
import runs
import tables
import w1
from test_index import SMOKE_ENTRIES

HERE = Path(__file__).parent
README = HERE / "README.md"
FLEET_PLOT = HERE.parent / "docs" / "plots" / "fleet.svg"
FIGURES = ("<!-- figures -->", "<!-- end of figures -->")
SIMULATION = ("<!-- simulation -->", "<!-- end of simulation -->")
PEER_CRATES = ("dynamo-kv-router", "kv-index")
PEER_PACKAGES = ("ai-dynamo-runtime", "numpy", "xxhash")


def conditions(rounds: int) -> dict[str, str]:
    """What a figure depends on and does not say."""
    info = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    model = re.search(r"^model name\s*: (.*)$", info, re.MULTILINE)
    lock = (HERE / "peers" / "Cargo.lock").read_text()
    crates = [
        f"{name} {found[1]}"
        for name in PEER_CRATES
        if (found := re.search(rf'name = "{name}"\nversion = "([^"]+)"', lock))
    ]
    packages = []
    for name in PEER_PACKAGES:
        try:
            packages.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            packages.append(f"{name} not installed")
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"],  # noqa: S607 (whichever git there is)
        cwd=HERE,
        capture_output=True,
        text=True,
        check=False,
    ).stdout.strip()
    return {
        "date": dt.datetime.now(dt.UTC).date().isoformat(),
        "machine": f"{model[1] if model else platform.machine()}, {os.cpu_count()} cores",
        "load average before": f"{os.getloadavg()[0]:.1f}",
        "versions": ", ".join(
            [
                f"kvcache {commit or 'unknown'}",
                *crates,
                *packages,
                f"Python {platform.python_version()}",
            ]
        ),
        "command": f"make bench (`python bench/report.py --rounds {rounds}`)",
    }


def render(found: records.Records, stated: dict[str, str], drawn: list[Path]) -> str:
    """What stands between the marks of the README."""
    parts = ["\n".join(f"- {name}: {value}" for name, value in stated.items())]
    parts += [f"### {heading}\n\n{table}" for heading, table in tables.sections(found)]
    if drawn:
        images = [f"![{file.stem}](plots/{file.name})" for file in drawn]
        parts.append("### Plots\n\n" + "\n".join(images))
    return "\n\n".join(parts)


def write_readme(figures: str, marks: tuple[str, str] = FIGURES) -> None:
    begin, end = marks
    before, rest = README.read_text().split(begin)
    _, after = rest.split(end)
    README.write_text(f"{before}{begin}\n\n{figures}\n\n{end}{after}")


def publish(found: records.Records, stated: dict[str, str]) -> None:
    drawn = []
    if can_draw():
        drawn = [plots.draw(plot, HERE / "plots") for plot in plots.plots(found)]
    write_readme(render(found, stated, drawn))


def can_draw() -> bool:
    """Whether there is matplotlib; without it says so."""
    if plots.available():
        return True
    print("no plots: they need matplotlib (pip install matplotlib)", file=sys.stderr)
    return False


def smoke() -> None:
    with tempfile.TemporaryDirectory() as folder:
        found = runs.python(Path(folder), SMOKE_ENTRIES)
    print(render(found, conditions(0), []))


def promised() -> None:
    stated = conditions(0) | {"command": "`python bench/report.py --goals`"}
    print(render(runs.promised(), stated, []))


def simulation() -> None:
    """The tables of the simulated fleet, and its plot."""
    found = runs.simulated()
    parts = [f"#### {heading}\n\n{table}" for heading, table in tables.fleet(found)]
    write_readme("\n\n".join(parts), SIMULATION)
    if can_draw():
        plots.draw_fleet(found, FLEET_PLOT)


def full(rounds: int) -> None:
    stated = conditions(rounds)
    folder = w1.directory()
    found = runs.peers(rounds) + runs.python(folder, runs.ENTRIES)
    found += runs.criterion() + runs.promised()
    kept: dict[str, Any] = {
        "conditions": stated,
        "records": [records.to_json(one) for one in found],
    }
    (folder / "figures.json").write_text(json.dumps(kept))
    publish(found, stated)
    simulation()


def again(file: Path) -> None:
    kept = json.loads(file.read_text())
    publish([records.parse(json.dumps(one)) for one in kept["records"]], kept["conditions"])


def main() -> None:
    parser = argparse.ArgumentParser(description="Measures everything and writes the tables.")
    parser.add_argument("--smoke", action="store_true", help="tiny, no peers, writes nothing")
    parser.add_argument("--goals", action="store_true", help="only what is promised")
    parser.add_argument("--simulation", action="store_true", help="only the simulated fleet")
    parser.add_argument("--rounds", type=int, default=3, help="alternating rounds a process")
    parser.add_argument("--from", dest="earlier", type=Path, help="figures.json of an earlier run")
    args = parser.parse_args()
    if args.smoke:
        smoke()
    elif args.goals:
        promised()
    elif args.simulation:
        simulation()
    elif args.earlier:
        again(args.earlier)
    else:
        full(args.rounds)


if __name__ == "__main__":
    main()
