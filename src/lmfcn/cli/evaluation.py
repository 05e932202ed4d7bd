"""An evaluation as lines and tables."""

from typing import TYPE_CHECKING

from lmfcn.cli.telling import Teller, counted

if TYPE_CHECKING:
    from lmfcn.inference.evaluation import Evaluation
    from lmfcn.inference.intervals import Estimate

_MOST_CLASSES = 12


def tell_accuracy(teller: Teller, found: "Evaluation", what: str) -> None:
    """Tell the balanced accuracy and the recall of each class."""
    groups = "" if found.n_groups is None else f" of {counted(found.n_groups, 'group')}"
    score = with_interval(found.balanced_accuracy)
    teller.say(f"Balanced accuracy {score} on {counted(found.n_images, what)}{groups}")
    rows = [
        [label, str(recall.n), f"{recall.value:.3f}", f"{recall.low:.3f} to {recall.high:.3f}"]
        for label, recall in found.recalls.items()
    ]
    teller.table(["class", "images", "recognised", "95 % interval"], rows)


def tell_confusion(teller: Teller, found: "Evaluation") -> None:
    """Tell what was taken for what: the whole matrix of a few classes, the commonest confusions of many."""
    if len(found.classes) <= _MOST_CLASSES:
        rows = [[label, *map(str, counts)] for label, counts in zip(found.classes, found.confusion, strict=True)]
        teller.table(["true, predicted →", *found.classes], rows)
        return
    wrong = [
        (int(count), found.classes[row], found.classes[column])
        for row, counts in enumerate(found.confusion)
        for column, count in enumerate(counts)
        if count and row != column
    ]
    teller.say("The commonest confusions:")
    teller.table(
        ["true", "predicted", "images"], [[true, guess, str(n)] for n, true, guess in sorted(wrong, reverse=True)[:20]]
    )


def tell_calibration(teller: Teller, found: "Evaluation") -> None:
    """Tell whether probabilities and prediction sets can be trusted."""
    teller.say(
        f"Calibration error {found.calibration_error:.3f}, log loss {found.log_loss:.3f},"
        f" Brier score {found.brier_score:.3f}"
    )
    for row in found.coverage:
        teller.say(
            f"Prediction sets that aim at {row.promised:g} held the true class of {row.found:.3f} of the images,"
            f" with {row.mean_size:.2f} classes in a set"
        )


def with_interval(estimate: "Estimate") -> str:
    """Return a share with the ends of its interval."""
    return f"{estimate.value:.3f} ({estimate.low:.3f} to {estimate.high:.3f})"
