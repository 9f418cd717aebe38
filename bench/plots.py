"""Plots of records, as SVG: cost against prompt length, streams and entries, a line a contestant; and of fleets."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from records import Records, select
from tables import FLEET

if TYPE_CHECKING:
    from pathlib import Path

Lines = dict[str, list[tuple[float, float]]]


class Plot(NamedTuple):
    name: str
    title: str
    across: str
    up: str
    lines: Lines


def available() -> bool:
    try:
        import matplotlib as mpl  # noqa: PLC0415 (optional)
    except ModuleNotFoundError:
        return False
    mpl.use("svg")
    mpl.rcParams["svg.fonttype"] = "none"
    # The same figures give the same file.
    mpl.rcParams["svg.hashsalt"] = "kvcache"
    return True


def against_length(records: Records, measure: str) -> Lines:
    main = [record for record in records if record.figures.get("main")]
    return {
        record.contestant: [(longest, cost) for longest, cost in record.figures["by_length"]]
        for record in select(main, measure, block_size=16, variant="shared")
    }


def against(records: Records, sweep: str, measure: str, key: str, scale: float = 1.0) -> Lines:
    """Along `sweep`: "streams" or "entries"."""
    lines: Lines = {}
    for record in select(records, measure):
        if record.figures.get("sweep") == sweep:
            point = (float(getattr(record, sweep)), record.figures[key] * scale)
            lines.setdefault(record.contestant, []).append(point)
    return {name: sorted(points) for name, points in lines.items()}


def plots(records: Records) -> list[Plot]:
    tokens, keys, length = "query from tokens", "query from keys", "prompt, tokens"
    found = [
        Plot(
            "tokens-by-length",
            "Query from tokens",
            length,
            "median µs",
            against_length(records, tokens),
        ),
        Plot(
            "keys-by-length", "Query from keys", length, "median µs", against_length(records, keys)
        ),
    ]
    for sweep in ("streams", "entries"):
        for measure, key, scale, up, name in (
            (tokens, "p50_us", 1.0, "median µs", "tokens"),
            (keys, "p50_us", 1.0, "median µs", "keys"),
            ("apply stores", "blocks_per_s", 1e-6, "M blocks/s", "stores"),
            ("memory", "bytes_per_entry", 1.0, "bytes an entry", "memory"),
        ):
            lines = against(records, sweep, measure, key, scale)
            found.append(Plot(f"{name}-by-{sweep}", measure.capitalize(), sweep, up, lines))
    return [plot for plot in found if plot.lines]


def short(value: float) -> str:
    """Such as 1.4k and 2M."""
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{round(value / size, 1):g}{unit}"
    return f"{value:g}"


def draw(plot: Plot, folder: Path) -> Path:
    """Writes the plot; needs matplotlib."""
    from matplotlib.figure import Figure  # noqa: PLC0415 (optional)
    from matplotlib.ticker import (  # noqa: PLC0415 (optional)
        LogLocator,
        NullFormatter,
        StrMethodFormatter,
    )

    figure = Figure(figsize=(5, 3.4), layout="constrained")
    axes = figure.add_subplot()
    for contestant, points in plot.lines.items():
        across, up = zip(*points, strict=True)
        axes.plot(across, up, marker="o", markersize=3, label=contestant)
    axes.set(title=plot.title, xlabel=plot.across, ylabel=plot.up, xscale="log", yscale="log")
    measured = sorted({across for points in plot.lines.values() for across, _ in points})
    axes.set_xticks(measured, [short(across) for across in measured])
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_minor_formatter(NullFormatter())
    axes.grid(visible=True, which="both", alpha=0.25)
    axes.legend(fontsize=7)
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{plot.name}.svg"
    figure.savefig(file, metadata={"Date": None})
    return file


def draw_fleet(records: Records, file: Path) -> Path:
    """What each policy gives and takes, a panel a load: tokens reused against the longest waits. Needs matplotlib."""
    from matplotlib.figure import Figure  # noqa: PLC0415 (optional)
    from matplotlib.ticker import NullFormatter, StrMethodFormatter  # noqa: PLC0415 (optional)

    runs = select(records, FLEET)
    loads = sorted({record.figures["sessions_per_s"] for record in runs})
    figure = Figure(figsize=(3.4 * len(loads), 3.6), layout="constrained")
    panels = figure.subplots(1, len(loads), sharex=True, sharey=True, squeeze=False)[0]
    for axes, per_s in zip(panels, loads, strict=True):
        axes.set(title=f"{per_s:g} sessions/s", xlabel="tokens reused, %", yscale="log")
        lines: dict[str, list[tuple[float, float, str]]] = {}
        for record in runs:
            if record.figures["sessions_per_s"] == per_s:
                name = "RR" if record.contestant == "RR" else f"CAR, queues {record.variant}"
                weight = record.contestant.removeprefix("CAR ").replace("least loaded", "0")
                point = (record.figures["hit_rate"] * 100, record.figures["wait_p99_s"], weight)
                lines.setdefault(name, []).append(point)
        for name, points in lines.items():
            across, up, _ = zip(*points, strict=True)
            axes.plot(across, up, marker="o", markersize=4, label=name)
            for x, y, weight in points:
                label, below = ("RR", -9) if name == "RR" else (f"λ {weight}", 4)
                axes.annotate(label, (x, y), (3, below), textcoords="offset points", fontsize=7)
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axes.yaxis.set_minor_formatter(NullFormatter())
        axes.set_yticks([2, 5, 10, 20, 50])
        axes.margins(x=0.12)
        axes.grid(visible=True, which="both", alpha=0.25)
    panels[0].set_ylabel("p99 of the wait, s")
    panels[-1].legend(fontsize=7)
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, metadata={"Date": None})
    return file
