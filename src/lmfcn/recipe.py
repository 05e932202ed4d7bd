"""Recipe: every choice of the method, the recipes that have a name, and their checks.

A `Recipe` holds all values that decide what is learnt. `LMFCNClassifier` takes one, or the name of one, and
overrides the few values that people change most often. What is not a choice of the method (device, seed, number of
processes, checkpoints) is no part of a recipe.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from lmfcn.util.checks import check_choice, check_integer, check_positive, check_widths

Strategy = Literal["joint", "one-vs-all"]
RecipeName = Literal["default", "paper", "authors-program"]

EPOCHS = 6
WHOLE_BATCH_EPOCHS, WHOLE_BATCH_EPOCHS_ONE_VS_ALL = 15, 10
"""With one optimiser step on all images per epoch, as in the paper, it takes more of them."""
REFIT_SHARE = 7 / 15
"""Of the epochs, the share that also learns from the validation images."""

IMAGES_PER_EPOCH = 1500
"""Of all passes together: on few images, it takes more passes for as many optimiser steps."""
FEWEST_PASSES, MOST_PASSES = 4, 12
SMALLEST_CROP = 16

_CHOICES: dict[str, tuple[Any, ...]] = {
    "strategy": ("joint", "one-vs-all"),
    "first_filters": ("decorrelated", "random"),
    "epoch_selection": ("one-se", "best", "last"),
    "support_loss": ("contrast", "pull"),
    "distance": ("squared", "euclidean"),
    "distance_units": ("kernel", "latent"),
    "correction_class": ("own", "any", "settled"),
    "augmentation": ("none", "flips", "dihedral"),
    "step_per": ("batch", "term"),
    "batch_statistics": ("refreshed", "running"),
    "optimizer": ("adamw", "adadelta"),
    "precision": ("auto", "float32", "bfloat16"),
    "deviations": ("auto", True, False),
    "correlations": ("auto", True, False),
}
_SWITCHES = (
    "fixed_first",
    *("keep_untrained", "standardize", "balanced", "fallback_anchors", "fill_anchors"),
    *("whiten", "refit", "split_duplicates"),
)
_SMALLEST = {"latent_dim": 1, "scales": 1, "sv_close": 0, "wr_close": 0, "sh_close": 0}
_POSITIVE = ("C", "gamma_factor", "contrast_scale", "learning_rate", "final_rate", "head_rate")
_NOT_NEGATIVE = ("anchor_weight", "head_weight", "weight_decay", "prior_shift")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How networks are trained and how the final SVM is fitted.

    The defaults are the recipe that learns best in our measurements (docs/research/recipe.md). `Recipe.paper()` is the
    paper's own method, `Recipe.authors_program()` that of the program that its authors published.

    Parameters
    ----------
    latent_dim : int, default=64
        Length of the trained latent vector, *phi*.
    widths : tuple of int, default=(64, 128)
        Filters of the hidden convolutions.
    first_filters : {"decorrelated", "random"}, default="decorrelated"
        Initial filters of the first layer: all random, as in the paper, or half of them random in the space in which
        neighbouring pixels of the training images are uncorrelated. No labels are used.
    fixed_first : bool, default=True
        Whether the first layer stays as it starts, which halves the time of training. It learns with a `batch_size` of
        "all", or on the maps of a frozen network.
    deviations : bool or "auto", default="auto"
        Whether latents hold the standard deviations of the feature maps beside their means. They see what is rare in an
        image, a crack or a hole, which hardly changes a mean. "auto" decides by cross-validation before training;
        without `whiten` or `keep_untrained` it is True.
    correlations : bool or "auto", default="auto"
        Whether the features beside the trained latents, those of the untrained or of a frozen network, also hold
        correlations between mixtures of their maps: which patterns come together, whatever their contrast. "auto" is
        True for a frozen network only: behind an untrained one, training makes up for them. They need `deviations`.
    scales : int, default=3
        At how many scales the untrained network describes an image, each half of the one before: the first is the image
        itself (very large images are reduced first), the last has a shorter side of at least 32 pixels.
    crop_size : "auto", None or int, default="auto"
        What the back-propagated images show: whole images, reduced to about 64 pixels by a power of 2 (None), or random
        crops of so many pixels of the images themselves. "auto" compares both on the training images before training.
        With `scales=1`, whole images are not reduced.
    keep_untrained : bool, default=True
        Whether the final SVM also sees the untrained network: the means of the maps of all its layers. The model then
        contains that network too.
    strategy : {"joint", "one-vs-all"}, default="joint"
        With more than two classes: one network for all classes, or the paper's one network per class.
    epochs : int or "auto", default="auto"
        Epochs per network, refit epochs included. "auto" is 6; with a `batch_size` of "all", one step per epoch, it is
        15, or 10 with one network per class.
    refit_epochs : int or "auto", default="auto"
        How many of the epochs, the last ones, also learn from the validation images, after these have selected the
        epoch to go on from and the calibration. "auto" is 3 of 6, or 0 without `refit`.
    epoch_selection : {"one-se", "best", "last"}, default="one-se"
        Which epoch counts: the latest whose validation balanced accuracy is within one standard error of the best, the
        first of the best, as in the paper, or the last. Without validation images it is the last one.
    sv_close, wr_close, sh_close : int, default=5, 1, 0
        Anchors per support vector, per misclassified and per non-support image; 0 switches that loss term off.
    fallback_anchors : bool, default=True
        Whether correctly classified support vectors serve as anchors for a class in which every image is a support
        vector. Without them such a class cannot learn.
    fill_anchors : bool, default=False
        Whether an image with too few allowed anchors gets arbitrary forbidden ones, as in the authors' program.
    correction_class : {"own", "any", "settled"}, default="own"
        Class of the support vectors that misclassified images are moved to; "any" is equation 6. "settled" moves them
        to correctly classified images of their own class that are no support vectors, as the authors' program does.
    C : float, default=10
        Penalty of a margin violation in the SVMs.
    gamma : "scale" or float, default="scale"
        Coefficient of the RBF kernel. "scale" is `gamma_factor` / (n_features * variance), measured in every epoch.
    gamma_factor : float, default=1
        Factor on "scale".
    standardize : bool, default=True
        Whether the kernel and the anchor losses see every latent feature with mean 0 and standard deviation 1.
    balanced : bool, default=False
        Whether both sides of every SVM get the same weight, however many images they have.
    prior_shift : float, default=0.5
        How far the final decision is shifted towards rare classes: 0 decides by the class frequencies of the data, 1
        as if all classes were equally frequent.
    support_loss : {"contrast", "pull"}, default="contrast"
        Loss of the support vectors: compare the distances to own and opposite anchors, or only pull towards own
        anchors (equation 11).
    contrast_scale : float, default=10
        Scale of the distances in the contrast loss.
    anchor_weight : float, default=0.1
        Factor on the three anchor terms together.
    distance : {"squared", "euclidean"}, default="squared"
        Distance in the pulling terms: the paper's, or that of its authors' program.
    distance_units : {"kernel", "latent"}, default="kernel"
        Whether the losses measure gamma times the squared distance, or the squared distance itself.
    head_weight : float, default=1
        Factor on the cross-entropy of a linear head on the latents of the support vectors; 0 is the paper's loss. The
        head is thrown away after training.
    head_rate : float, default=10
        Learning rate of the head, as a multiple of `learning_rate`.
    augmentation : {"flips", "dihedral", "none"}, default="flips"
        How the back-propagated images are changed at random: horizontal and vertical flips, all eight flips and
        quarter turns of a square, or not at all. Use "none" if mirror images belong to different classes.
    batch_size : int, "all" or "image", default=32
        Images per optimiser step; "all" is one step on all of them, as in the paper. So is "image", but the images
        go through the network one by one, each normalised by itself, and their losses are added up.
    step_per : {"batch", "term"}, default="batch"
        Whether a step follows the sum of the loss terms, or each term has steps of its own. The head has no step of
        its own: "term" needs `head_weight=0`.
    batch_statistics : {"refreshed", "running"}, default="refreshed"
        What the batch normalisation uses for *T* and for new images: mean and variance of the whole training set,
        taken anew in every epoch, or the running averages of training batches.
    passes : int or "auto", default="auto"
        Passes over the back-propagated images per epoch. "auto" is 1500 divided by the number of training images, from
        4 to 12: few images need more passes for as many optimiser steps.
    optimizer : {"adamw", "adadelta"}, default="adamw"
    learning_rate : float, default=0.001
        Learning rate of the first epoch; it starts anew in the refit epochs.
    final_rate : float, default=0.1
        Share of the learning rate that is left at the end of a cosine schedule.
    weight_decay : float, default=0.01
    precision : {"auto", "float32", "bfloat16"}, default="auto"
        Number format of the convolutions in training. "auto" is bfloat16 where the processor has instructions for it,
        which takes two thirds of the time, else float32. The finished model always computes in float32.
    whiten : bool, default=True
        Whether the final SVM sees latents whitened within classes.
    refit : bool, default=True
        Whether the final SVM and the refit epochs also learn from the validation images. Without whitening, the final
        SVM then also selects its `C` and `gamma` by cross-validation.
    split_duplicates : bool, default=False
        Whether the validation images and the folds of cross-validations may separate near-identical images. Accuracies
        on held-out images are then too good.

    Examples
    --------
    >>> from lmfcn import LMFCNClassifier, Recipe
    >>> classifier = LMFCNClassifier(recipe=Recipe(head_weight=0.5, augmentation="none"))
    >>> Recipe.paper().batch_size
    'all'
    """

    latent_dim: int = 64
    widths: tuple[int, ...] = (64, 128)
    first_filters: Literal["decorrelated", "random"] = "decorrelated"
    fixed_first: bool = True
    deviations: bool | Literal["auto"] = "auto"
    correlations: bool | Literal["auto"] = "auto"
    scales: int = 3
    crop_size: int | Literal["auto"] | None = "auto"
    keep_untrained: bool = True
    strategy: Strategy = "joint"
    epochs: int | Literal["auto"] = "auto"
    refit_epochs: int | Literal["auto"] = "auto"
    epoch_selection: Literal["one-se", "best", "last"] = "one-se"
    sv_close: int = 5
    wr_close: int = 1
    sh_close: int = 0
    fallback_anchors: bool = True
    fill_anchors: bool = False
    correction_class: Literal["own", "any", "settled"] = "own"
    C: float = 10.0
    gamma: Literal["scale"] | float = "scale"
    gamma_factor: float = 1.0
    standardize: bool = True
    balanced: bool = False
    prior_shift: float = 0.5
    support_loss: Literal["contrast", "pull"] = "contrast"
    contrast_scale: float = 10.0
    anchor_weight: float = 0.1
    distance: Literal["squared", "euclidean"] = "squared"
    distance_units: Literal["kernel", "latent"] = "kernel"
    head_weight: float = 1.0
    head_rate: float = 10.0
    augmentation: Literal["none", "flips", "dihedral"] = "flips"
    batch_size: int | Literal["all", "image"] = 32
    step_per: Literal["batch", "term"] = "batch"
    batch_statistics: Literal["refreshed", "running"] = "refreshed"
    passes: int | Literal["auto"] = "auto"
    optimizer: Literal["adamw", "adadelta"] = "adamw"
    learning_rate: float = 1e-3
    final_rate: float = 0.1
    weight_decay: float = 1e-2
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    whiten: bool = True
    refit: bool = True
    split_duplicates: bool = False

    def __post_init__(self) -> None:
        _check_values(self)
        _check_moments(self)
        _check_epochs(self)
        _check_loss_terms(self)

    @classmethod
    def paper(cls) -> "Recipe":
        """Return the paper's own method: its loss on one batch, with the optimiser and constants of its authors."""
        return cls(
            latent_dim=16,
            widths=(64, 128),
            first_filters="random",
            fixed_first=False,
            deviations=False,
            correlations=False,
            scales=1,
            crop_size=None,
            keep_untrained=False,
            strategy="one-vs-all",
            epochs="auto",
            refit_epochs=0,
            epoch_selection="best",
            sv_close=5,
            wr_close=1,
            sh_close=0,
            fallback_anchors=False,
            correction_class="any",
            C=1.0,
            gamma="scale",
            gamma_factor=1.0,
            standardize=False,
            balanced=False,
            prior_shift=0.0,
            support_loss="pull",
            anchor_weight=1.0,
            distance="squared",
            distance_units="latent",
            head_weight=0.0,
            augmentation="none",
            batch_size="all",
            passes=1,
            optimizer="adadelta",
            learning_rate=0.1,
            final_rate=0.1,
            weight_decay=0.1,
            precision="float32",
            whiten=False,
            refit=False,
        )

    @classmethod
    def authors_program(cls) -> "Recipe":
        """Return the method of the program that the paper's authors published, where it differs from the paper.

        It is here to be understood, not to be used: docs/research/reproduction.md says what keeps it from learning.
        """
        return replace(
            cls.paper(),
            epoch_selection="last",
            fill_anchors=True,
            correction_class="settled",
            distance="euclidean",
            batch_size="image",
            step_per="term",
            batch_statistics="running",
        )

    @property
    def n_epochs(self) -> int:
        """`epochs` as a number."""
        return _resolved(self.epochs, "epochs")

    @property
    def n_refit_epochs(self) -> int:
        """`refit_epochs` as a number."""
        return _resolved(self.refit_epochs, "refit_epochs")

    @property
    def moment_orders(self) -> list[int]:
        """The highest moments that an untrained network may tell: means (0), deviations (1) or correlations (2)."""
        if self.deviations is False:
            return [0]
        if self.correlations is True:
            return [2]
        return [1] if self.deviations is True else [1, 0]

    @property
    def sees_mirror_images(self) -> bool:
        """Whether whitening also sees what frozen networks make of mirror images: if they are of the same class."""
        return self.whiten and self.augmentation != "none"

    @property
    def n_passes(self) -> int:
        """`passes` as a number."""
        return _resolved(self.passes, "passes")

    def for_data(self, n_classes: int, n_images: int, *, has_validation: bool) -> "Recipe":
        """Return the recipe with numbers of epochs and passes for these data.

        What "auto" means for `deviations` and `crop_size`, only the images can tell.

        Two classes need one network, whatever the strategy. Without validation images there is nothing to refit on.
        `n_images` counts the training images.
        """
        strategy = self.strategy if n_classes > 2 else "joint"
        epochs = self.epochs
        if epochs == "auto":
            epochs = _usual_epochs(strategy, self.batch_size)
        refit_epochs = self.refit_epochs
        if refit_epochs == "auto":
            refit_epochs = round(epochs * REFIT_SHARE) if self.refit else 0
        if not has_validation:
            refit_epochs = 0
        passes = self.passes
        if passes == "auto":
            passes = min(max(round(IMAGES_PER_EPOCH / n_images), FEWEST_PASSES), MOST_PASSES)
        return replace(self, strategy=strategy, epochs=epochs, refit_epochs=refit_epochs, passes=passes)


def _usual_epochs(strategy: Strategy, batch_size: int | str) -> int:
    if isinstance(batch_size, int):
        return EPOCHS
    return WHOLE_BATCH_EPOCHS_ONE_VS_ALL if strategy == "one-vs-all" else WHOLE_BATCH_EPOCHS


RECIPES = {"default": Recipe, "paper": Recipe.paper, "authors-program": Recipe.authors_program}
"""The recipes that have a name."""


def find_recipe(recipe: "str | Recipe") -> Recipe:
    """Return a recipe by its name, or the recipe itself."""
    if isinstance(recipe, Recipe):
        return recipe
    if not isinstance(recipe, str) or recipe not in RECIPES:
        names = ", ".join(map(repr, RECIPES))
        raise ValueError(f"recipe must be {names} or a lmfcn.Recipe, got {recipe!r}.")
    return RECIPES[recipe]()


def override(recipe: "str | Recipe", values: Mapping[str, Any]) -> Recipe:
    """Return a recipe in which the given values replace its own; None leaves a value as it is."""
    given = {name: value for name, value in values.items() if value is not None}
    return replace(find_recipe(recipe), **given)


def change(recipe: "str | Recipe", values: Mapping[str, Any]) -> Recipe:
    """Return a recipe with some values changed, for `set_params(recipe__name=value)`."""
    found = find_recipe(recipe)
    unknown = sorted(set(values) - {field.name for field in fields(Recipe)})
    if unknown:
        raise ValueError(f"A Recipe has no value {unknown[0]!r}; see lmfcn.Recipe for those it has.")
    return replace(found, **values)


def _resolved(value: int | str, name: str) -> int:
    if isinstance(value, str):
        raise ValueError(f"{name} is {value!r}; Recipe.for_data gives a recipe with numbers.")
    return value


def _check_values(recipe: Recipe) -> None:
    """Refuse single values that no training can run with."""
    check_widths(recipe.widths)
    for name, smallest in _SMALLEST.items():
        check_integer(name, getattr(recipe, name), smallest)
    for name in _POSITIVE:
        check_positive(name, getattr(recipe, name))
    for name in _NOT_NEGATIVE:
        check_positive(name, getattr(recipe, name), zero_allowed=True)
    for name, choices in _CHOICES.items():
        check_choice(name, getattr(recipe, name), choices)
    for name in _SWITCHES:
        check_choice(name, getattr(recipe, name), (True, False))
    if recipe.batch_size not in ("all", "image"):
        check_integer("batch_size", recipe.batch_size, smallest=1)
    if recipe.passes != "auto":
        check_integer("passes", recipe.passes, smallest=1)
    if recipe.crop_size not in ("auto", None):
        check_integer("crop_size", recipe.crop_size, smallest=SMALLEST_CROP)
    if recipe.gamma != "scale":
        check_positive("gamma", recipe.gamma)


def _check_moments(recipe: Recipe) -> None:
    """Refuse correlations without the standard deviations that they are measured in."""
    if recipe.correlations is True and recipe.deviations is False:
        raise ValueError(
            "correlations=True needs the standard deviations too, got deviations=False; leave one of them out."
        )


def _check_epochs(recipe: Recipe) -> None:
    """Refuse refit epochs that would leave no other, or learn from what must not be learnt from."""
    if recipe.epochs != "auto":
        check_integer("epochs", recipe.epochs, smallest=1)
    if recipe.refit_epochs == "auto":
        return
    check_integer("refit_epochs", recipe.refit_epochs, smallest=0)
    if recipe.epochs != "auto" and recipe.refit_epochs >= recipe.epochs:
        raise ValueError(
            f"refit_epochs must be less than epochs, {recipe.epochs}, of which they are a part,"
            f" got {recipe.refit_epochs}."
        )
    if recipe.refit_epochs and not recipe.refit:
        raise ValueError(
            f"refit_epochs={recipe.refit_epochs} learn from validation images, which refit=False excludes;"
            " set refit=True, or leave refit_epochs at its default."
        )


def _check_loss_terms(recipe: Recipe) -> None:
    """Refuse a loss without any term."""
    anchors = recipe.anchor_weight * (recipe.sv_close + recipe.wr_close + recipe.sh_close)
    if anchors + recipe.head_weight == 0:
        raise ValueError(
            "sv_close, wr_close and sh_close are all 0, or anchor_weight is, and so is head_weight; at least one term"
            " of the loss must be positive to learn anything."
        )
    if recipe.step_per == "term" and recipe.head_weight:
        raise ValueError(
            f'step_per="term" has no step for the head, got head_weight={recipe.head_weight}; set head_weight=0.'
        )
