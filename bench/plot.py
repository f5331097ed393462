"""Plot the times of this service against the number of hosts."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from bench.measuring import Result
from bench.scenarios import LIMITS


def draw(path: Path, results: Sequence[Result]) -> None:
    """Write a PNG with one plot per limit and one line per request."""
    figure = Figure(figsize=(12, 5), layout="constrained")
    for limit, axes in zip(LIMITS, figure.subplots(1, len(LIMITS), sharey=True), strict=True):
        for scenario, request in dict.fromkeys((r.scenario, r.request) for r in results):
            points = [
                (r.hosts, r.ours.milliseconds)
                for r in results
                if (r.scenario, r.request, r.limit) == (scenario, request, limit) and r.ours.milliseconds
            ]
            axes.loglog(*zip(*points, strict=True), marker="o", label=f"{scenario}: {request}")
        sizes = sorted({result.hosts for result in results})
        axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter("{x:g}")
        axes.minorticks_off()
        axes.set(title=f"limit {limit}", xlabel="hosts", ylabel="ms")
        axes.grid(alpha=0.3)
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    figure.savefig(path, dpi=120, format="png")
