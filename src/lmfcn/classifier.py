"""The scikit-learn face of the method: checks what it is given, then delegates."""

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from lmfcn.compute.resources import use_threads
from lmfcn.data.arrays import RandomState, as_generator
from lmfcn.data.training_data import TrainingData
from lmfcn.method.epoch import Observer
from lmfcn.method.history import TrainingWarning
from lmfcn.model_file import save
from lmfcn.recipe import Settings
from lmfcn.training.checkpoints import Checkpoints
from lmfcn.training.estimator import ImageClassifier
from lmfcn.training.fit import Fitted, fit_model
from lmfcn.training.phases import resumed_plan
from lmfcn.training.plan import plan_of, record_of, settings_of


class LMFCNClassifier(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ImageClassifier):
    """Large-margin fully convolutional network for texture images of two or more classes.

    A short convolutional network turns every image into a latent vector; in each epoch an RBF SVM on the
    latents finds the support vectors, and only they (and the misclassified, which are among them) are
    back-propagated, towards anchors of their own class, away from other ones, and so that a linear layer can tell
    their classes apart. Validation images choose the epoch; then the network goes on learning from them too. At the end
    one SVM on the latents, and on what the untrained network says, decides.

    Parameters
    ----------
    latent_dim : int, optional
        Length of the latent vector that is trained, *phi*; 64 unless a preset says otherwise.
    widths : sequence of int, default=(64, 128)
        Filters of the hidden convolutions.
    first_filters : {"decorrelated", "random"}, optional
        Where the filters of the first layer start: at random, as in the paper, or (default) half of them at random in
        the space in which neighbouring pixels of the training images are uncorrelated. No labels are used.
    keep_untrained : bool, optional
        Whether the SVM at the end sees, before the trained latents, what the untrained network says about an image
        (the means of the maps of all its layers); it does by default. The model then holds that network too.
    epochs : int, optional
        Rounds of encoding, SVM, anchors and back-propagation: 15 by default, 10 for each network of
        "one-vs-all".
    closing_epochs : int, optional
        How many of these, the last ones, learn from the validation images too. By then those have chosen the epoch to
        go on from and the calibration. 7 of 15 by default, 5 of 10; 0 if there are no validation images
        or with `refit=False`.
    strategy : {"joint", "one-vs-all"}, optional
        What to do with more than two classes: one network for all of them (default), or the paper's one
        network per class against all others, whose latents are put one behind the other. It makes no
        difference to two classes.
    sv_close, wr_close, sh_close : int, default=5, 1, 0
        Anchors per support vector, per misclassified and per settled image; 0 switches that term of the
        loss off.
    C : float, optional
        Price of a margin violation in the SVM; 10 unless a preset says otherwise.
    gamma : "scale" or float, default="scale"
        Width of the RBF kernel. "scale" follows the latents: `gamma_factor` / (their number * variance). A number is
        taken for the epochs and for the SVM at the end alike, whose latents have another scale if they are whitened.
    gamma_factor : float, default=1
        Factor on "scale".
    standardize : bool, optional
        Whether the kernel sees every latent feature with mean 0 and standard deviation 1; it does by default.
    support_loss : {"contrast", "pull"}, optional
        What moves the support vectors: the comparison of own and opposite anchors (default), or the
        paper's pull towards own anchors alone.
    sharpness : float, default=10
        Steepness of the contrast loss.
    anchor_weight : float, optional
        Factor on the terms that move images to or from their anchors, 0.1 by default.
    head_weight : float, optional
        Factor on the cross-entropy of a linear layer on the latents of the support vectors, beside those terms: 1 by
        default, 0 in the paper. The layer is only there to train the network and is thrown away.
    head_rate : float, default=10
        Learning rate of that layer, as a multiple of `learning_rate`.
    views : {"flips", "turns", "none"}, optional
        How the images that move are shown: mirrored in both directions at random (default), also turned by quarters, or
        as they are. Take "none" if mirror images belong to different classes.
    distance : {"squared", "euclidean"}, default="squared"
        Distance in the pulling terms.
    units : {"kernel", "latent"}, optional
        Whether the losses measure squared distances in units of the kernel (times gamma, default) or as
        they are.
    correction_class : {"own", "any"}, optional
        Class of the support vectors that misclassified images are moved to: their own (default), or any, as in
        equation 6 of the paper.
    stand_ins : bool, optional
        Whether correctly classified support vectors serve as anchors for a class in which every image is a
        support vector (they do by default); without them such a class cannot learn.
    batch_size : int or "all", optional
        Images per optimiser step, 32 by default; "all" takes one step on the whole set.
    passes : int, optional
        How often an epoch goes through the images that move, 8 times by default.
    keep : {"latest", "best"}, optional
        Which epoch counts, and is gone on from in the closing epochs: the latest whose validation balanced accuracy is
        not below the best by more than one standard error (default), or the first of the best, as in the paper. The
        last one without validation images.
    optimizer : {"adamw", "adadelta"}, optional
        AdamW by default.
    learning_rate : float, optional
        Rate in the first epoch, 0.001 by default.
    final_rate : float, default=0.1
        Share of the learning rate that is left at the end.
    weight_decay : float, optional
        0.01 by default.
    precision : {"auto", "float32", "bfloat16"}, default="auto"
        Numbers that the convolutions of the training compute with. "auto" is float32 for now; bfloat16 is meant
        for processors with instructions for it. The finished model always computes in float32.
    class_weight : dict, "auto", "balanced" or None, default="auto"
        Factor on `C` for each class; "balanced" gives both sides of every SVM the same weight. "auto" leaves the
        SVMs alone and lets the last one lean towards rare classes, which does more for the balanced accuracy; it
        makes no difference to classes of equal size. The linear layer of `head_weight` always weighs all classes
        the same.
    whiten : bool, optional
        Whether the SVM at the end sees latents in which images of one class scatter alike in all directions (default),
        so that what tells classes apart counts most; or every latent feature by itself.
    refit : bool, optional
        Whether the SVM at the end learns from the validation images too, and so do the networks in `closing_epochs`
        (default); with `whiten=False` it then also chooses `C` and `gamma` by cross-validation. Otherwise it is fitted
        on the training images, or stays that of the kept epoch if there is one network and nothing is whitened.
    preset : {"paper"} or None, default=None
        Values for the parameters that are left at None. "paper" is the paper's loss on one batch with the
        optimiser and the constants of its authors' program.
    validation_fraction : float, default=0.2
        Share of every class that is held out when `fit` is given no validation images: to choose the epoch by and to
        calibrate with, then to learn from (see `closing_epochs`). With 0 nothing is held out, the
        last epoch is kept, probabilities are too confident and there are no prediction sets.
    image_shape : tuple of int, optional
        (height, width) or (height, width, channels) of images that come as rows (n, n_pixels); one of them
        may be -1. Needed only for tools that know nothing but tables.
    device : str, default="auto"
        "cpu", "cuda", "mps", ...; "auto" takes an accelerator where there is one.
    random_state : None, int or NumPy generator, default=None
        A fixed seed makes `fit` repeatable bit for bit on the CPU of one machine with the same number of
        threads.
    n_jobs : int, optional
        Networks of "one-vs-all" to train at the same time, in processes that share the cores; -1 is one for each core.
    checkpoint_dir : path, optional
        Folder for a checkpoint after every epoch. `fit` with the same data and parameters goes on from
        there, with the same numbers of threads whatever `n_jobs` is then, and ends as if it had never been interrupted.
    on_epoch : callable, optional
        Called after every epoch with its `EpochRecord` and its `LatentSpace`; not with several workers. In the closing
        epochs the space holds training images and, behind them, validation images, and there is no validation accuracy.
    verbose : bool, default=False
        Show a progress bar on standard error.

    Attributes
    ----------
    classes_ : array (n_classes,)
        The labels in sorted order.
    model_ : TextureModel
        What predicts: networks, SVM and calibration, without the training data.
    history_ : History of EpochRecord, or list of them
        What was measured in each epoch with validation images held out; epoch 0 is the untrained network. With
        "one-vs-all" a list, in the order of `classes_`.
    closing_history_ : History of EpochRecord, list of them, or None
        The same for the `closing_epochs`, which go on from the kept epoch with all images; None if there were none.
    best_epoch_ : int, or list of int
        The kept epoch of `history_`, by the rule of `keep`.
    n_iter_ : int
        Rounds of back-propagation that were run, closing epochs included; the most of any network.
    interrupted_ : bool
        Whether the user stopped the training (Ctrl-C) before its last epoch.
    support_ : array of int
        Indices into X of the support vectors of the final SVM. Validation images that were given beside X
        follow after those of X.
    dual_coef_ : array (n_scores, n_support)
        Their weights in the decision, in the order of `support_`. Two classes have one score.
    intercept_ : array (n_scores,)
        Constants of the decision.
    calibration_error_ : float
        Expected calibration error of probabilities on held-out images; None if nothing could be held out.
    held_out_ : HeldOut
        Probabilities of the validation images (of training images, if there are none), each from an SVM that had not
        learnt from that image, on latents of the kept epoch, before any network had: what to judge the model by when
        there is no test set.
    settings_ : Settings
        The settings in force after the preset was applied.
    n_features_in_ : int
        Columns of X if it came as rows, else the channels of its images.

    Examples
    --------
    >>> from lmfcn import LMFCNClassifier, make_gaussians
    >>> X, y = make_gaussians(n_per_class=20, size=16, random_state=0)
    >>> classifier = LMFCNClassifier(epochs=2, latent_dim=8, random_state=0).fit(X, y)
    >>> classifier.predict(X).shape, classifier.transform(X).shape
    ((40,), (40, 39))
    >>> len(classifier.history_), classifier.n_iter_
    (2, 2)
    """

    def __init__(
        self,
        *,
        latent_dim: int | None = None,
        widths: tuple[int, ...] = (64, 128),
        first_filters: str | None = None,
        keep_untrained: bool | None = None,
        epochs: int | None = None,
        closing_epochs: int | None = None,
        strategy: str | None = None,
        sv_close: int = 5,
        wr_close: int = 1,
        sh_close: int = 0,
        C: float | None = None,
        gamma: Literal["scale"] | float = "scale",
        gamma_factor: float = 1.0,
        standardize: bool | None = None,
        support_loss: str | None = None,
        sharpness: float = 10.0,
        anchor_weight: float | None = None,
        head_weight: float | None = None,
        head_rate: float = 10.0,
        views: str | None = None,
        distance: str = "squared",
        units: str | None = None,
        correction_class: str | None = None,
        stand_ins: bool | None = None,
        batch_size: int | Literal["all"] | None = None,
        passes: int | None = None,
        keep: str | None = None,
        optimizer: str | None = None,
        learning_rate: float | None = None,
        final_rate: float = 0.1,
        weight_decay: float | None = None,
        precision: str = "auto",
        class_weight: Mapping[Any, float] | Literal["auto", "balanced"] | None = "auto",
        whiten: bool | None = None,
        refit: bool | None = None,
        preset: str | None = None,
        validation_fraction: float = 0.2,
        image_shape: tuple[int, ...] | None = None,
        n_jobs: int | None = None,
        checkpoint_dir: str | Path | None = None,
        device: str = "auto",
        random_state: RandomState = None,
        on_epoch: Observer | None = None,
        verbose: bool = False,
    ) -> None:
        self.latent_dim = latent_dim
        self.widths = widths
        self.first_filters = first_filters
        self.keep_untrained = keep_untrained
        self.epochs = epochs
        self.closing_epochs = closing_epochs
        self.strategy = strategy
        self.sv_close = sv_close
        self.wr_close = wr_close
        self.sh_close = sh_close
        self.C = C
        self.gamma = gamma
        self.gamma_factor = gamma_factor
        self.standardize = standardize
        self.support_loss = support_loss
        self.sharpness = sharpness
        self.anchor_weight = anchor_weight
        self.head_weight = head_weight
        self.head_rate = head_rate
        self.views = views
        self.distance = distance
        self.units = units
        self.correction_class = correction_class
        self.stand_ins = stand_ins
        self.batch_size = batch_size
        self.passes = passes
        self.keep = keep
        self.optimizer = optimizer
        self.learning_rate = learning_rate
        self.final_rate = final_rate
        self.weight_decay = weight_decay
        self.precision = precision
        self.class_weight = class_weight
        self.whiten = whiten
        self.refit = refit
        self.preset = preset
        self.validation_fraction = validation_fraction
        self.image_shape = image_shape
        self.n_jobs = n_jobs
        self.checkpoint_dir = checkpoint_dir
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
        X : array (n, height, width) or (n, height, width, channels), ImageCollection, or path
            uint8, uint16 or floating point pixels; with `image_shape`, rows (n, n_pixels).
        y : array-like (n,)
            Labels of any kind, two classes or more; a collection may bring its own.
        groups : array-like (n,), optional
            Images of one group (a patient, a slide, a source image) are never split between training
            and validation; a collection may bring its own. In `cross_val_score` hand them over twice, for the
            outer and for the inner division: `groups=g, params={"groups": g}`.
        validation : tuple (X, y) or ImageCollection, optional
            Images to choose the epoch by and to calibrate with; without them a part of X is held out.
            In the end the model learns from them too unless `refit` is False, so they are no test set.
        """
        parameters = self.get_params(deep=False)
        settings = settings_of(parameters)
        checkpoints = None if self.checkpoint_dir is None else Checkpoints.open(self.checkpoint_dir)
        seed = self._seed(checkpoints)
        data = self._check_data(X, y, groups, validation, np.random.default_rng(seed))
        plan = plan_of(parameters, settings, data, seed)
        record = record_of(parameters, data, plan)
        notes: list[str] = []
        if checkpoints is not None:
            plan, notes = resumed_plan(plan, checkpoints.claim(record, plan.threads))
        with use_threads(plan.threads.process):
            fitted = fit_model(data, plan)
        self._store(fitted, data, plan.settings, record)
        for message in notes + fitted.messages:
            warnings.warn(message, TrainingWarning, stacklevel=2)
        return self

    def decision_function(self, X: Any) -> np.ndarray:
        """Return the value (n,) of the SVM's decision, positive for `classes_[1]`; (n, n_classes) for more classes."""
        return self._model.decision_function(self._rows(X))

    def predict(self, X: Any) -> np.ndarray:
        """Return the label (n,) of every image, the most probable one."""
        return self._model.predict(self._rows(X))

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return probabilities (n, n_classes), calibrated on held-out scores of the validation images.

        With `class_weight="auto"` they lean towards rare classes; None leaves the frequencies of the data in.
        """
        return self._model.predict_proba(self._rows(X))

    def predict_set(self, X: Any, coverage: float = 0.9) -> np.ndarray:
        """Return which classes (n, n_classes) cannot be ruled out: see `TextureModel.predict_set`.

        About a share `coverage` of images have their true class in their set. It is guaranteed, on average over
        images that are exchangeable with the validation images, for a model that is not trained further after it was
        calibrated (`refit=False`). The default model is trained further on the validation images after that: its
        coverage is usually higher than asked for, but not guaranteed.
        """
        return self._model.predict_set(self._rows(X), coverage)

    def predict_or_reject(self, X: Any, confidence: float = 0.9, rejected: Any = None) -> np.ndarray:
        """Return labels (n,) where the probability is at least `confidence`, and `rejected` elsewhere."""
        return self._model.predict_or_reject(self._rows(X), confidence, rejected)

    def transform(self, X: Any) -> np.ndarray:
        """Return what the last SVM measures distances between, (n, n_features) for images (n, ...).

        Latents of the untrained network, if it is kept, and of the trained ones: whitened, which mixes them, or one
        behind the other with `whiten=False`.
        """
        return self._model.transform(self._rows(X))

    def save(self, path: str | Path) -> None:
        """Write the fitted model to one file; `lmfcn.load` reads it, without scikit-learn and without risk."""
        save(self._model, path)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags

    @property
    def _model(self) -> Any:
        check_is_fitted(self, "model_")
        return self.model_

    @property
    def _n_features_out(self) -> int:
        return self.model_.n_features

    def _seed(self, checkpoints: Checkpoints | None) -> int:
        """Return the seed of this fit: that of the run in the folder, if the user leaves it open."""
        there = None if checkpoints is None else checkpoints.seed()
        if there is not None and not isinstance(self.random_state, int | np.integer):
            return there
        return int(as_generator(self.random_state).integers(2**62))

    def _store(self, fitted: Fitted, data: TrainingData, settings: Settings, record: dict[str, Any]) -> None:
        trained, decision = fitted.trained, fitted.model.decision
        self.model_ = fitted.model
        self.classes_, self.settings_ = data.classes, settings
        histories, epochs = [result.history for result in trained], [result.kept.epoch for result in trained]
        closing = fitted.closing_histories
        self.history_ = histories[0] if len(trained) == 1 else histories
        self.closing_history_ = None if not closing else closing[0] if len(trained) == 1 else closing
        self.best_epoch_ = epochs[0] if len(trained) == 1 else epochs
        by_network = zip(histories, closing, strict=True) if closing else zip(histories, strict=True)
        self.n_iter_ = max(sum(len(history) - 1 for history in phases) for phases in by_network)
        self.interrupted_ = fitted.interrupted
        self.support_ = fitted.support
        self.dual_coef_ = decision.coefficients.T.cpu().numpy()
        self.intercept_ = decision.intercepts.cpu().numpy()
        self.calibration_error_ = fitted.model.calibration.error
        self.held_out_ = fitted.held_out
        fitted.model.record = {**record, **fitted.record(), "image_digests": data.digests()}
