"""Plots of a report's sections as SVG, by matplotlib. The same records give the same files."""

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot, ticker  # noqa: E402

from benchmarks.records import format_size  # noqa: E402

matplotlib.rcParams.update({"svg.hashsalt": "phalanx", "font.size": 9})


def draw(section, folder):
    """Draws two plots of a section; returns [(title, file name)]."""
    plots = [("time over size", _draw_times)]
    if section.limits():
        plots.append(("ratio to the limit", _draw_ratios))
    return draw_each(section, plots, folder)


def draw_each(drawn, plots, folder):
    """Draws each of `plots`, (title, a function of what is `drawn` and axes), into a file; returns [(title, file name)]."""
    files = []
    for title, drawing in plots:
        file = f"{drawn.name()}-{title.split()[0]}.svg"
        figure, axes = pyplot.subplots(figsize=(7, 4.2))
        drawing(drawn, axes)
        axes.set_title(drawn.title(), fontsize=8)
        axes.grid(alpha=0.3)
        if axes.get_legend_handles_labels()[0]:
            axes.legend(fontsize=7)
        figure.tight_layout()
        figure.savefig(folder / file, metadata={"Date": None})
        pyplot.close(figure)
        files.append((title, file))
    return files


def _set_scales(section, axes):
    axes.set(xscale="log", yscale="log", xlabel="size")
    axes.set_xticks(section.sizes(), [format_size(size) for size in section.sizes()])
    axes.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.minorticks_off()


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
    _set_scales(section, axes)
    axes.set_ylabel("ms, median (minimum to maximum)")


def _draw_ratios(section, axes):
    for name, each in section.series.items():
        sizes = [size for size in sorted(each) if each[size]["limit_s"] > 0]
        ratios = [each[size]["median_s"] / each[size]["limit_s"] for size in sizes]
        axes.plot(sizes, ratios, label=name, marker="o", markersize=3, linewidth=1)
    axes.axhline(1, color="k", linestyle="--", linewidth=1)
    _set_scales(section, axes)
    axes.set_ylabel("median / limit")
