"""The scikit-learn face of the method: checks what it is given, then delegates."""

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, Literal

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from lmfcn.algorithm.encode import encode
from lmfcn.algorithm.history import EpochRecord
from lmfcn.algorithm.latent_space import LatentSpace
from lmfcn.algorithm.network import TextureFCN
from lmfcn.algorithm.settings import PRESETS, Settings
from lmfcn.algorithm.training import BinaryTraining, Observer, Problem
from lmfcn.data.arrays import check_like_training
from lmfcn.data.loading import form_of, load_images
from lmfcn.data.seeds import RandomState, as_generator
from lmfcn.data.training_data import TrainingData, check_training_data
from lmfcn.parameters import check_choice, check_device, check_fraction, check_integer, check_settings, check_widths
from lmfcn.progress import epoch_progress, progress_note


class LMFCNClassifier(ClassifierMixin, TransformerMixin, BaseEstimator):
    """Large-margin fully convolutional network for two classes of texture images.

    A short convolutional network turns every image into a latent vector; in each epoch an RBF SVM on the
    latents finds the support vectors, and only they (and the misclassified, which are among them) are
    back-propagated, towards anchors of their own class and away from the other one.

    Parameters
    ----------
    latent_dim : int, optional
        Length of the latent vector, *phi*; 64 unless a preset says otherwise.
    widths : sequence of int, default=(64, 128)
        Filters of the hidden convolutions.
    epochs : int, default=15
        Rounds of encoding, SVM, anchors and back-propagation.
    sv_close, wr_close, sh_close : int, default=5, 1, 0
        Anchors per support vector, per misclassified and per settled image; 0 switches that term of the
        loss off.
    C : float, optional
        Price of a margin violation in the SVM; 10 unless a preset says otherwise.
    gamma : "scale" or float, default="scale"
        Width of the RBF kernel. "scale" follows the latents: `gamma_factor` / (latent_dim * variance).
    gamma_factor : float, default=1
        Factor on "scale".
    standardize : bool, optional
        Whether the kernel sees every latent feature with mean 0 and standard deviation 1; it does by default.
    support_loss : {"contrast", "pull"}, optional
        What moves the support vectors: the comparison of own and opposite anchors (default), or the
        paper's pull towards own anchors alone.
    sharpness : float, default=10
        Steepness of the contrast loss.
    distance : {"squared", "euclidean"}, default="squared"
        Distance in the pulling terms.
    units : {"kernel", "latent"}, optional
        Whether the losses measure squared distances in units of the kernel (times gamma, default) or as
        they are.
    correction_class : {"own", "any"}, default="own"
        Class of the support vectors that misclassified images are moved to.
    stand_ins : bool, optional
        Whether correctly classified support vectors serve as anchors for a class in which every image is a
        support vector (they do by default); without them such a class cannot learn.
    batch_size : int or "all", optional
        Images per optimiser step, 32 by default; "all" takes one step on the whole set.
    passes : int, optional
        How often an epoch goes through the images that move, 8 times by default.
    optimizer : {"adamw", "adadelta"}, optional
        AdamW by default.
    learning_rate : float, optional
        Rate in the first epoch, 0.0003 by default.
    final_rate : float, default=0.1
        Share of the learning rate that is left at the end.
    weight_decay : float, optional
        0.01 by default.
    class_weight : dict, "balanced" or None, default=None
        Factor on `C` for each class.
    preset : {"paper"} or None, default=None
        Values for the parameters that are left at None. "paper" is the paper's loss on one batch with the
        optimiser and the constants of its authors' program.
    validation_fraction : float, default=0.2
        Share of every class that is held out to choose the epoch when `fit` is given no validation
        images. With 0 nothing is held out and the last epoch is kept.
    device : str, default="auto"
        "cpu", "cuda", "mps", ...; "auto" takes an accelerator where there is one.
    random_state : None, int or NumPy generator, default=None
        A fixed seed makes `fit` repeatable bit for bit on the CPU of one machine with the same number of
        threads.
    on_epoch : callable, optional
        Called after every epoch with its `EpochRecord` and its `LatentSpace`.
    verbose : bool, default=False
        Show a progress bar on standard error.

    Attributes
    ----------
    classes_ : array (2,)
        The labels in sorted order.
    history_ : History of EpochRecord
        What was measured in each epoch; epoch 0 is the untrained network.
    best_epoch_ : int
        The kept epoch: best validation balanced accuracy, the earlier one on a tie.
    n_iter_ : int
        Rounds of back-propagation that were run.
    support_ : array of int
        Indices into X of the support vectors of the kept epoch.
    dual_coef_ : array (1, n_support)
        Their weights in the decision, in the order of `support_`.
    intercept_ : array (1,)
        Constant of the decision.
    network_ : TextureFCN
        The kept network.
    settings_ : Settings
        The settings in force after the preset was applied.

    Examples
    --------
    >>> from lmfcn import LMFCNClassifier, make_gaussians
    >>> X, y = make_gaussians(n_per_class=20, size=16, random_state=0)
    >>> classifier = LMFCNClassifier(epochs=2, latent_dim=8, random_state=0).fit(X, y)
    >>> classifier.predict(X).shape, classifier.transform(X).shape
    ((40,), (40, 8))
    >>> len(classifier.history_)
    3
    """

    def __init__(
        self,
        *,
        latent_dim: int | None = None,
        widths: tuple[int, ...] = (64, 128),
        epochs: int = 15,
        sv_close: int = 5,
        wr_close: int = 1,
        sh_close: int = 0,
        C: float | None = None,
        gamma: Literal["scale"] | float = "scale",
        gamma_factor: float = 1.0,
        standardize: bool | None = None,
        support_loss: str | None = None,
        sharpness: float = 10.0,
        distance: str = "squared",
        units: str | None = None,
        correction_class: str = "own",
        stand_ins: bool | None = None,
        batch_size: int | Literal["all"] | None = None,
        passes: int | None = None,
        optimizer: str | None = None,
        learning_rate: float | None = None,
        final_rate: float = 0.1,
        weight_decay: float | None = None,
        class_weight: Mapping[Any, float] | Literal["balanced"] | None = None,
        preset: str | None = None,
        validation_fraction: float = 0.2,
        device: str = "auto",
        random_state: RandomState = None,
        on_epoch: Observer | None = None,
        verbose: bool = False,
    ) -> None:
        self.latent_dim = latent_dim
        self.widths = widths
        self.epochs = epochs
        self.sv_close = sv_close
        self.wr_close = wr_close
        self.sh_close = sh_close
        self.C = C
        self.gamma = gamma
        self.gamma_factor = gamma_factor
        self.standardize = standardize
        self.support_loss = support_loss
        self.sharpness = sharpness
        self.distance = distance
        self.units = units
        self.correction_class = correction_class
        self.stand_ins = stand_ins
        self.batch_size = batch_size
        self.passes = passes
        self.optimizer = optimizer
        self.learning_rate = learning_rate
        self.final_rate = final_rate
        self.weight_decay = weight_decay
        self.class_weight = class_weight
        self.preset = preset
        self.validation_fraction = validation_fraction
        self.device = device
        self.random_state = random_state
        self.on_epoch = on_epoch
        self.verbose = verbose

    def fit(
        self,
        X: Any,
        y: Any = None,
        groups: Any = None,
        validation: Any = None,
    ) -> "LMFCNClassifier":
        """Train on images and labels.

        Parameters
        ----------
        X : array (n, height, width) or (n, height, width, channels), or ImageCollection
            uint8, uint16 or floating point pixels.
        y : array-like (n,)
            Labels of any kind, two classes; a collection may bring its own.
        groups : array-like (n,), optional
            Images of one group (a patient, a slide, a source image) are never split between training
            and validation; a collection may bring its own.
        validation : tuple (X, y) or ImageCollection, optional
            Images to choose the epoch by; without them a part of X is held out.
        """
        settings = self._check_parameters()
        device, random = check_device(self.device), as_generator(self.random_state)
        data = check_training_data(X, y, groups, validation, self.validation_fraction, random, verbose=self.verbose)
        if len(data.classes) > 2:
            raise ValueError(
                f"LMFCNClassifier handles two classes, got {len(data.classes)}: {data.classes.tolist()[:5]}."
            )
        settings = replace(settings, class_weight=_by_number(settings.class_weight, data.classes))
        problem = Problem(
            data.images,
            torch.from_numpy(data.numbers).to(device),
            data.validation_images,
            None if data.validation_numbers is None else torch.from_numpy(data.validation_numbers).to(device),
        )
        generator = torch.Generator().manual_seed(int(random.integers(2**62)))
        self._store(self._train(problem, data.channels, settings, generator), data)
        return self

    def decision_function(self, X: Any) -> np.ndarray:
        """Return the value (n,) of the SVM's decision for every image; positive means `classes_[1]`."""
        latents = self._encode(X)
        return self._decision.decide(latents).cpu().numpy()

    def predict(self, X: Any) -> np.ndarray:
        """Return the label (n,) of every image."""
        decisions = self.decision_function(X)
        return self.classes_[(decisions > 0).astype(np.intp)]

    def transform(self, X: Any) -> np.ndarray:
        """Return the latents (n, latent_dim) of every image, in the space in which the kernel measures."""
        latents = self._encode(X)
        return self._decision.scale.apply(latents).cpu().numpy()

    def _encode(self, X: Any) -> torch.Tensor:
        check_is_fitted(self, "network_")
        images = load_images(X)
        check_like_training(form_of(images), self._channels, self._pixels)
        return encode(self.network_, images, next(self.network_.parameters()).device)

    def _train(self, problem: Problem, channels: int, settings: Settings, generator: torch.Generator) -> BinaryTraining:
        network = TextureFCN(channels, self._value("latent_dim"), self.widths, generator=generator)
        with epoch_progress("LMFCN", settings.epochs + 1, visible=self.verbose) as advance:

            def observe(record: EpochRecord, space: LatentSpace) -> None:
                advance(progress_note(record.validation_balanced_accuracy, record.n_support))
                if self.on_epoch is not None:
                    self.on_epoch(record, space)

            training = BinaryTraining(network.to(problem.labels.device), problem, settings, generator, observe)
            training.run()
        return training

    def _store(self, training: BinaryTraining, data: TrainingData) -> None:
        kept = training.kept
        self.classes_, self._channels, self._pixels = data.classes, data.channels, data.pixels
        self.network_, self._decision = kept.network, kept.decision
        self.settings_, self.history_ = training.settings, training.history
        self.best_epoch_, self.n_iter_ = kept.epoch, len(training.history) - 1
        self.support_ = data.chosen[kept.support.cpu().numpy()]
        self.dual_coef_ = kept.decision.coefficients.cpu().numpy()[None, :]
        self.intercept_ = np.array([kept.decision.intercept])

    def _value(self, name: str) -> Any:
        """Return a parameter; where the user left it at None, that of the preset or of the default recipe."""
        value = getattr(self, name)
        if value is not None or name == "class_weight":
            return value
        defaults = {"latent_dim": 64, **vars(Settings())}
        return {**defaults, **PRESETS.get(self.preset or "", {})}[name]

    def _check_parameters(self) -> Settings:
        check_choice("preset", self.preset, (None, *PRESETS))
        check_integer("latent_dim", self._value("latent_dim"), smallest=1)
        check_widths(self.widths)
        check_fraction("validation_fraction", self.validation_fraction)
        if self.on_epoch is not None and not callable(self.on_epoch):
            raise ValueError(f"on_epoch must be callable, got {self.on_epoch!r}.")
        settings = Settings(**{field.name: self._value(field.name) for field in fields(Settings)})
        check_settings(settings)
        return settings


def _by_number(class_weight: Any, classes: np.ndarray) -> Any:
    """Translate weights by label into weights by class number."""
    if not isinstance(class_weight, Mapping):
        return class_weight
    unknown = set(class_weight) - set(classes.tolist())
    if unknown:
        raise ValueError(f"class_weight names labels that are not in y: {sorted(unknown, key=str)}.")
    return {number: class_weight.get(label, 1.0) for number, label in enumerate(classes.tolist())}
