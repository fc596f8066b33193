"""Callbacks for Weights & Biases and MLflow: copy what you need.

fit(step, state, train, callbacks=[WeightsAndBiases(project="sums"), MLflow()])
"""

import mlflow
import wandb

from vramfit.train import Evaluation, LogPoint, RunStart


class WeightsAndBiases:
    def __init__(self, **options):
        self.options, self.id, self.run = options, None, None

    def __call__(self, event, run):
        if isinstance(event, RunStart):
            self.run = wandb.init(id=self.id, resume="allow", **self.options)
            self.id = self.run.id
            # Log points arrive after evaluations of later steps.
            self.run.define_metric("*", step_metric="step")
        elif isinstance(event, LogPoint | Evaluation):
            group = "train" if isinstance(event, LogPoint) else "validation"
            values = {f"{group}/{name}": value for name, value in event.metrics.items()}
            self.run.log({**values, "step": event.step})

    def save_state(self):
        return self.id

    def restore_state(self, id):
        self.id = id

    def close(self):
        if self.run is not None:
            self.run.finish()


class MLflow:
    def __init__(self):
        self.id, self.is_open = None, False

    def __call__(self, event, run):
        if isinstance(event, RunStart):
            self.id, self.is_open = mlflow.start_run(run_id=self.id).info.run_id, True
        elif isinstance(event, LogPoint | Evaluation):
            group = "train" if isinstance(event, LogPoint) else "validation"
            values = {f"{group}/{name}": value for name, value in event.metrics.items()}
            mlflow.log_metrics(values, step=event.step)

    def save_state(self):
        return self.id

    def restore_state(self, id):
        self.id = id

    def close(self):
        if self.is_open:
            mlflow.end_run()
