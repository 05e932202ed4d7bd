"""Follow a training in TensorBoard or MLflow, and keep the model in MLflow.

pip install tensorboard mlflow-skinny pandas
python examples/track_training.py [FOLDER]     # then: tensorboard --logdir FOLDER/tensorboard
"""

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

import lmfcn
from lmfcn import Callback, LMFCNClassifier, make_gaussians


def numbers(record: Any) -> dict[str, float]:
    """Return what was measured in an epoch, without what was not."""
    values = asdict(record)
    return {name: float(value) for name, value in values.items() if isinstance(value, int | float) and name != "epoch"}


class TensorBoardCallback(Callback):
    """Writes every quantity of an epoch as a scalar."""

    def __init__(self, folder: Path) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.writer = SummaryWriter(str(folder))

    def on_epoch_end(self, training: Any, record: Any, space: Any) -> None:  # noqa: ARG002
        """Write the record."""
        for name, value in numbers(record).items():
            self.writer.add_scalar(f"{record.phase}/{name}", value, record.epoch)

    def on_training_end(self, training: Any, result: Any) -> None:  # noqa: ARG002
        """Write what is waiting; the refit epochs come as a training of their own."""
        self.writer.flush()


class MLflowCallback(Callback):
    """Logs every quantity of an epoch as a metric of the active run."""

    def on_epoch_end(self, training: Any, record: Any, space: Any) -> None:  # noqa: ARG002
        """Log the record."""
        import mlflow

        values = {f"{record.phase}.{name}": value for name, value in numbers(record).items()}
        mlflow.log_metrics(values, step=record.epoch)


def pyfunc_model() -> Any:
    """Return a model for `mlflow.pyfunc`: its input is an array of images, its output their labels.

    MLflow keeps our file beside it. Its own part is a pickle, so load models only from a server that you trust.
    """
    from mlflow.pyfunc import PythonModel

    class TextureClassifier(PythonModel):
        def load_context(self, context: Any) -> None:
            self.model = lmfcn.load(context.artifacts["model"])

        def predict(self, context: Any, model_input: np.ndarray, params: Any = None) -> np.ndarray:  # noqa: ARG002
            return self.model.predict(np.asarray(model_input))

    return TextureClassifier()


def track_in_tensorboard(folder: Path, **options: Any) -> LMFCNClassifier:
    """Train with curves in TensorBoard."""
    X, y = make_gaussians(n_per_class=20, size=32, random_state=0)
    callback = TensorBoardCallback(folder / "tensorboard")
    classifier = LMFCNClassifier(random_state=0, **options).fit(X, y, callbacks=[callback])
    callback.writer.close()
    return classifier


def track_in_mlflow(folder: Path, **options: Any) -> np.ndarray:
    """Train with curves, parameters and the model in MLflow; return what the logged model predicts."""
    import mlflow

    X, y = make_gaussians(n_per_class=20, size=32, random_state=0)
    mlflow.set_tracking_uri(f"sqlite:///{folder.resolve() / 'mlflow.db'}")
    mlflow.set_experiment("textures")
    with mlflow.start_run():
        classifier = LMFCNClassifier(random_state=0, **options).fit(X, y, callbacks=[MLflowCallback()])
        mlflow.log_params({name: str(value) for name, value in classifier.get_params(deep=False).items()})
        mlflow.log_metric("held_out_balanced_accuracy", classifier.held_out_.balanced_accuracy)
        classifier.save(folder / "model.lmfcn")
        logged = mlflow.pyfunc.log_model(
            name="model", python_model=pyfunc_model(), artifacts={"model": str(folder / "model.lmfcn")}
        )
    return mlflow.pyfunc.load_model(logged.model_uri).predict(X[:4])


if __name__ == "__main__":
    target = Path(sys.argv[1] if len(sys.argv) > 1 else "tracked")
    target.mkdir(exist_ok=True)
    track_in_tensorboard(target)
    print(track_in_mlflow(target))
