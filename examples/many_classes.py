"""Three photographed textures: train, ask for probabilities and doubt, save, load. Needs the extra `textures`."""

import sys
from pathlib import Path

import lmfcn
from lmfcn import LMFCNClassifier
from lmfcn.data.datasets import load_photographed_textures


def main(folder: Path, tile: int = 64, epochs: int = 5) -> float:
    """Train on tiles of brick, grass and gravel; return the accuracy on tiles of other places."""
    tiles = load_photographed_textures(tile)
    classifier = LMFCNClassifier(epochs=epochs, checkpoint_dir=folder / "checkpoints", random_state=0, verbose=True)
    classifier.fit(tiles.part("train"), validation=tiles.part("val"))
    classifier.save(folder / "textures.lmfcn")

    model = lmfcn.load(folder / "textures.lmfcn")  # anywhere, without the training images and without scikit-learn
    test = tiles.part("test")
    probabilities = model.predict_proba(test)
    sets = model.predict_set(test, coverage=0.95)
    answers = model.predict_or_reject(test, confidence=0.9, rejected="ask a person")
    for number in range(3):
        chances = ", ".join(f"{label} {p:.2f}" for label, p in zip(model.classes, probabilities[number], strict=True))
        print(
            f"tile {number}: {chances}; cannot be ruled out: {model.classes[sets[number]].tolist()}; {answers[number]}"
        )
    accuracy = float((model.predict(test) == test.labels).mean())
    print(f"accuracy on {len(test)} new tiles: {accuracy:.3f}, model of {model_size(folder)} kB")
    return accuracy


def model_size(folder: Path) -> int:
    """Return the size of the model file in kB."""
    return (folder / "textures.lmfcn").stat().st_size // 1000


if __name__ == "__main__":
    target = Path(sys.argv[1] if len(sys.argv) > 1 else "textures")
    target.mkdir(exist_ok=True)
    main(target)
