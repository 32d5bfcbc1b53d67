"""Plots of applications as SVG: bars, loss over time, and the steps of failure runs. The same records give the same files."""

from benchmarks import report_plots


def draw(experiment, folder):
    """Draws the plots of an experiment; returns [(what, file name)]."""
    records = experiment.ways.values()
    drawn = [] if experiment.record["kill"] else [("time of one", _draw_bars)]
    if all(trial["curve"] and trial.get("curve_name") for record in records for trial in record["trials"]):
        drawn.append((f"{experiment.curve_name()} over time", _draw_curves))
    if experiment.record["kill"]:
        drawn.append(("steps", _draw_steps))
    return report_plots.draw_each(experiment, drawn, folder)


def _draw_bars(experiment, axes):
    records = list(experiment.ways.values())
    medians = [record["median_s"] for record in records]
    below = [record["median_s"] - record["min_s"] for record in records]
    above = [record["max_s"] - record["median_s"] for record in records]
    colours = ["C0" if record["algorithm"] == "phalanx" else "C1" for record in records]
    axes.bar(list(experiment.ways), medians, yerr=(below, above), color=colours, capsize=4, width=0.6)
    if experiment.record["floor_s"]:
        axes.axhline(experiment.record["floor_s"], color="k", linestyle="--", linewidth=1, label="the links alone")
    axes.set_ylabel(f"seconds of one ({experiment.record['unit']}), median (minimum to maximum)")


def _draw_curves(experiment, axes):
    for number, (label, record) in enumerate(experiment.ways.items()):
        for trial in record["trials"]:
            seconds, values = zip(*trial["curve"])
            axes.plot(seconds, values, color=f"C{number}", linewidth=1, label=label)
            label = None  # once in the legend
    axes.set(xlabel="seconds", ylabel=experiment.curve_name())


def _draw_steps(experiment, axes):
    for number, (label, record) in enumerate(experiment.ways.items()):
        for trial in record["trials"]:
            steps = trial["step_seconds"]
            axes.plot(range(len(steps)), steps, color=f"C{number}", linewidth=1, marker="o", markersize=3, label=label)
            label = None
            if trial["kill"]["back_at_step"] is not None:
                axes.axvline(trial["kill"]["back_at_step"], color=f"C{number}", linestyle=":", linewidth=1, label="it is back")
    axes.axvline(int(experiment.record["kill"].split("@")[1]), color="k", linestyle="--", linewidth=1, label="a worker is killed")
    axes.set(xlabel="step", ylabel="seconds of the step")
