"""Plots of a report's sections as SVG, by matplotlib. The same records give the same files."""

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot, ticker  # noqa: E402

from benchmarks.records import format_size  # noqa: E402

matplotlib.rcParams.update({"svg.hashsalt": "phalanx", "font.size": 9})


def draw(section, folder):
    """Draws two plots of a section; returns [(title, file name)]."""
    drawn = [("time over size", _draw_times)]
    if section.limits():
        drawn.append(("ratio to the limit", _draw_ratios))
    files = []
    for what, drawing in drawn:
        file = f"{section.name()}-{what.split()[0]}.svg"
        figure, axes = pyplot.subplots(figsize=(7, 4.2))
        drawing(section, axes)
        axes.set(xscale="log", yscale="log", xlabel="size", title=section.title())
        axes.set_xticks(section.sizes(), [format_size(size) for size in section.sizes()])
        axes.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter("{x:g}")
        axes.minorticks_off()
        axes.grid(alpha=0.3)
        axes.legend(fontsize=7)
        figure.tight_layout()
        figure.savefig(folder / file, metadata={"Date": None})
        pyplot.close(figure)
        files.append((what, file))
    return files


def _draw_times(section, axes):
    for name, each in section.series.items():
        sizes = sorted(each)
        medians = [each[size]["median_s"] * 1e3 for size in sizes]
        below = [(each[size]["median_s"] - each[size]["min_s"]) * 1e3 for size in sizes]
        above = [(each[size]["max_s"] - each[size]["median_s"]) * 1e3 for size in sizes]
        axes.errorbar(sizes, medians, yerr=(below, above), label=name, marker="o", markersize=3, capsize=2, linewidth=1)
    limits = section.limits()
    if limits:
        sizes = sorted(limits)
        axes.plot(sizes, [limits[size] * 1e3 for size in sizes], "k--", linewidth=1, label="limit")
    axes.set_ylabel("ms, median (minimum to maximum)")


def _draw_ratios(section, axes):
    for name, each in section.series.items():
        sizes = [size for size in sorted(each) if each[size]["limit_s"] > 0]
        ratios = [each[size]["median_s"] / each[size]["limit_s"] for size in sizes]
        axes.plot(sizes, ratios, label=name, marker="o", markersize=3, linewidth=1)
    axes.axhline(1, color="k", linestyle="--", linewidth=1)
    axes.set_ylabel("median / limit")
