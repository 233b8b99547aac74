#!/usr/bin/env python3
"""Hands the numbers of runs, metrics.jsonl, to a tracker: TensorBoard, Weights & Biases, MLflow or Prometheus.

    tools/track_run.py RUN_FOLDER... --to tensorboard           what is there
    tools/track_run.py RUN_FOLDER --to prometheus --follow      and what comes, until it is told to end (SIGINT, SIGTERM)

Nothing is sent: all of them get files (docs/metrics.md says where, and which command shows them). The resolved deck becomes the
run's settings. If a run is resumed at an earlier step, what the tracker had is replaced. TensorBoard and Prometheus need no
packages; the others need wandb, or mlflow.
"""

import argparse
import contextlib
import pathlib
import signal
import sys
import threading
import time

TRACKERS = ("tensorboard", "wandb", "mlflow", "prometheus")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", metavar="RUN_FOLDER")
    parser.add_argument("--to", required=True, choices=TRACKERS)
    parser.add_argument("--output", metavar="PATH", help="folder, or FILE.prom (default: RUN_FOLDER/TRACKER); of several runs the folder for all")
    parser.add_argument("--name", help="of the run in the tracker (default: the folder's)")
    parser.add_argument("--follow", action="store_true", help="go on with what the run writes")
    parser.add_argument("--every", type=float, default=5, metavar="SECONDS", help="how often it is looked for (default: 5)")
    parser.add_argument("--idle", type=float, default=0, metavar="MINUTES", help="end if nothing has come for so long; 0: never")
    args = parser.parse_args()
    if args.name and len(args.runs) > 1:
        parser.error("--name is of one run: several have the names of their folders")
    return args


def tracker_of(name):
    """Its class."""
    if name == "tensorboard":
        from track.tensorboard import TensorBoard as tracker
    elif name == "prometheus":
        from track.prometheus import Prometheus as tracker
    elif name == "wandb":
        from track.services import WandB as tracker
    else:
        from track.services import MlFlow as tracker
    return tracker


class Tracking:
    def __init__(self, args, metrics):
        self.args, self.metrics, self.tracker = args, metrics, None
        self.make = tracker_of(args.to)
        self.name = args.name or metrics.folder.name
        own = "" if args.to == "wandb" else args.to  # that package makes a folder of its name
        self.output = args.output or metrics.folder / own
        if args.output and len(args.runs) > 1:  # other trackers tell runs of one folder apart
            self.output = pathlib.Path(args.output, {"tensorboard": self.name, "prometheus": f"{self.name}.prom"}.get(args.to, ""))

    def begin(self):
        """Hands over all rows that are there, in the place of what the tracker had of this run."""
        rows = self.metrics.begin()
        if self.tracker:
            self.tracker.close()
        self.tracker = self.make(self.output, self.name, self.metrics.deck())
        return self.hand_over(rows)

    def hand_over(self, rows):
        for row in rows:
            self.tracker.add(row)
        self.tracker.flush()
        return len(rows)

    def take(self):
        """Hands over what has come; returns how many rows that were."""
        rows = self.metrics.more() if self.tracker else None
        with contextlib.suppress(FileNotFoundError):  # the run has not begun
            return self.begin() if rows is None else self.hand_over(rows)
        return 0


def follow(trackings, args):
    """Until it is told to end, or nothing has come for --idle; what has come by then is handed over."""
    ended, last = threading.Event(), time.monotonic()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    while not ended.is_set() and not (args.idle and time.monotonic() - last > 60 * args.idle):
        ended.wait(args.every)
        last = time.monotonic() if sum([tracking.take() for tracking in trackings]) else last


def main():
    args = arguments()
    from packages import lacks
    from track.rows import Metrics

    trackings = [Tracking(args, Metrics(run)) for run in args.runs]
    if args.output and len({tracking.name for tracking in trackings}) < len(trackings):
        sys.exit("track_run.py: --output: two of the runs have one name, and would be one there: leave it out")
    try:
        for tracking in trackings:
            tracking.take() if args.follow else tracking.begin()
        if args.follow:
            follow(trackings, args)
    except ModuleNotFoundError as missing:
        sys.exit(f"track_run.py: {lacks(missing.name)}")
    except OSError as error:
        sys.exit(f"track_run.py: {error.filename or pathlib.Path(tracking.output)}: {error.strerror or error}")
    for tracking in trackings:
        if tracking.tracker:
            print(tracking.tracker.close())


if __name__ == "__main__":
    main()
