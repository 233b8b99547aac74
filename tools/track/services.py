"""Weights & Biases and MLflow, through their own packages, without a network."""

import hashlib
import os
import pathlib
import shutil

PROJECT = "ztrain"


class WandB:
    """An offline run, which takes the place of an earlier one of this tool; `wandb sync` sends it."""

    def __init__(self, output, name, deck):
        import wandb

        self.output = pathlib.Path(output)
        self.output.mkdir(parents=True, exist_ok=True)
        number = hashlib.sha1(str(self.output.absolute()).encode() + name.encode()).hexdigest()[:8]
        for old in self.output.glob(f"wandb/offline-run-*-{number}"):
            shutil.rmtree(old)
        settings = wandb.Settings(silent=True, console="off", x_disable_stats=True)
        words = {"project": PROJECT, "name": name, "id": number, "config": deck, "dir": str(self.output)}
        self.run = wandb.init(mode="offline", settings=settings, **words)

    def add(self, row):
        self.run.log({**row.numbers, "time": row.time}, step=row.step)

    def flush(self):
        """The package writes behind."""

    def close(self):
        folder = pathlib.Path(self.run.dir).parent
        self.run.finish()
        return f"wandb sync {folder}"


class MlFlow:
    """A run in a store of this machine, which takes the place of an earlier one of the same name."""

    AT_ONCE = 1000  # metrics; the store takes no more
    LONGEST = 6000  # characters of a parameter

    def __init__(self, output, name, deck):
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # if the package that SQLite needs is missing
        from mlflow.entities import Metric, Param
        from mlflow.tracking import MlflowClient

        self.output = pathlib.Path(output).absolute()
        self.output.mkdir(parents=True, exist_ok=True)
        self.uri, self.metric, self.waiting = self.store(), Metric, []
        self.client = MlflowClient(tracking_uri=self.uri)
        found = self.client.get_experiment_by_name(PROJECT)
        experiment = found.experiment_id if found else self.client.create_experiment(PROJECT, artifact_location=(self.output / "artifacts").as_uri())
        for old in self.client.search_runs([experiment]):
            if old.info.run_name == name:
                self.client.delete_run(old.info.run_id)
        self.run = self.client.create_run(experiment, run_name=name).info.run_id
        settings = [Param(key, str(value)[: self.LONGEST]) for key, value in deck.items()]
        for at in range(0, len(settings), 100):
            self.client.log_batch(self.run, params=settings[at : at + 100])

    def store(self):
        try:
            import sqlalchemy  # noqa: F401
        except ModuleNotFoundError:
            return self.output.as_uri()
        return f"sqlite:///{self.output / 'mlflow.db'}"

    def add(self, row):
        self.waiting += [self.metric(name, value, int(1000 * row.time), row.step) for name, value in row.numbers.items()]
        if len(self.waiting) > self.AT_ONCE - 100:
            self.flush()

    def flush(self):
        for at in range(0, len(self.waiting), self.AT_ONCE):
            self.client.log_batch(self.run, metrics=self.waiting[at : at + self.AT_ONCE])
        self.waiting = []

    def close(self):
        self.flush()
        self.client.set_terminated(self.run)
        return f"mlflow ui --backend-store-uri {self.uri}"
