"""Every choice that training depends on, and the named sets of choices."""

from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class Settings:
    """How a network is trained. The defaults are the recipe that learns best in our measurements.

    Attributes
    ----------
    epochs : int
        Rounds of encoding, SVM, anchors and back-propagation, those of the second phase included.
    closing_epochs : int
        How many of them, the last ones, learn from the validation images too, when these have chosen all that there
        is to choose.
    sv_close, wr_close, sh_close : int
        Anchors per support vector, per misclassified and per settled image; 0 switches the term off.
    C : float
        Price of a margin violation in the SVM.
    gamma : "scale" or float
        Width of the kernel: from the scale of the latents, or a fixed number.
    gamma_factor : float
        Factor on the width that "scale" gives.
    standardize : bool
        Whether the kernel sees every latent feature with mean 0 and standard deviation 1.
    support_loss : "contrast" or "pull"
        Compare own with opposite anchors, or equation 11.
    sharpness : float
        Steepness of the contrast loss.
    anchor_weight : float
        Factor on the three terms of the anchors together.
    head_weight : float
        Factor on the cross-entropy of a linear layer on the support vectors' latents, beside those terms; 0 is
        the paper's loss.
    head_rate : float
        Learning rate of that layer, as a multiple of the network's.
    views : "none", "flips" or "turns"
        How the images that move may be shown: as they are, mirrored in both directions at random, or also turned.
    distance : "squared" or "euclidean"
        Distance in the pulling terms: the paper's, or that of its authors' program.
    units : "kernel" or "latent"
        Whether the losses measure gamma times the squared distance, or the squared distance itself.
    correction_class : "own" or "any"
        Which support vectors a misclassified image may be moved to: those of its own class, as the paper's text
        suggests, or all of them, equation 6.
    stand_ins : bool
        Whether correctly classified support vectors serve as anchors for a class without settled images.
    batch_size : int or "all"
        Images per optimiser step; "all" is one step on the whole set, as in the paper.
    passes : int
        How often an epoch goes through the images that move.
    keep : "best" or "latest"
        Which epoch counts: the first with the best validation balanced accuracy, or the latest that is not worse
        than the best by more than one standard error.
    optimizer : "adamw" or "adadelta"
    learning_rate : float
        Rate in the first epoch.
    final_rate : float
        Share of it that is left at the end, after falling along half a cosine.
    weight_decay : float
    precision : "auto", "float32" or "bfloat16"
        Numbers that the convolutions of the training compute with; the final latents are always float32.
    balanced : bool
        Whether both sides of every SVM weigh the same, however many images they have.
    prior_shift : float
        How far the last SVM leans towards rare classes: 0 decides by their frequency in the data, 1 as if all
        classes were equally frequent.
    whiten : bool
        Whether the final SVM sees latents in which images of one class scatter alike in all directions.
    refit : bool
        Whether the final SVM and the last epochs learn from the validation images too; where latents are not whitened,
        that SVM then also chooses its C and gamma by cross-validation.
    """

    epochs: int = 15
    closing_epochs: int = 7
    sv_close: int = 5
    wr_close: int = 1
    sh_close: int = 0
    C: float = 10.0
    gamma: Literal["scale"] | float = "scale"
    gamma_factor: float = 1.0
    standardize: bool = True
    support_loss: Literal["contrast", "pull"] = "contrast"
    sharpness: float = 10.0
    anchor_weight: float = 0.1
    head_weight: float = 1.0
    head_rate: float = 10.0
    views: Literal["none", "flips", "turns"] = "flips"
    distance: Literal["squared", "euclidean"] = "squared"
    units: Literal["kernel", "latent"] = "kernel"
    correction_class: Literal["own", "any"] = "own"
    stand_ins: bool = True
    batch_size: int | Literal["all"] = 32
    passes: int = 8
    keep: Literal["best", "latest"] = "latest"
    optimizer: Literal["adamw", "adadelta"] = "adamw"
    learning_rate: float = 1e-3
    final_rate: float = 0.1
    weight_decay: float = 1e-2
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    balanced: bool = False
    prior_shift: float = 0.5
    whiten: bool = True
    refit: bool = True


PRESETS: dict[str, dict[str, Any]] = {
    # The paper's loss on one batch, with the optimiser and constants of its authors' published program.
    "paper": {
        "latent_dim": 16,
        "strategy": "one-vs-all",
        "first_filters": "random",
        "keep_untrained": False,
        "closing_epochs": 0,
        "C": 1.0,
        "standardize": False,
        "support_loss": "pull",
        "units": "latent",
        "correction_class": "any",
        "anchor_weight": 1.0,
        "head_weight": 0.0,
        "views": "none",
        "stand_ins": False,
        "batch_size": "all",
        "passes": 1,
        "keep": "best",
        "optimizer": "adadelta",
        "learning_rate": 0.1,
        "weight_decay": 0.1,
        "prior_shift": 0.0,
        "whiten": False,
        "refit": False,
    }
}
