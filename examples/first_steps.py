"""From images to a trained classifier that can be asked which images decide."""

from lmfcn import LMFCNClassifier, make_gaussians


def main(n_per_class: int = 60, size: int = 64, epochs: int = 15) -> float:
    """Train on striped Gaussian textures, print what was learnt and return the accuracy on new images."""
    X, y = make_gaussians(n_per_class, size, random_state=0)
    X_new, y_new = make_gaussians(n_per_class, size, random_state=1)

    classifier = LMFCNClassifier(epochs=epochs, random_state=0, verbose=True).fit(X, y)
    score = classifier.score(X_new, y_new)
    first, selected = classifier.history_[0], classifier.history_[classifier.best_epoch_]

    print(f"accuracy on new images: {score:.3f}")
    print(f"epoch {selected.epoch}: {selected.n_support} support vectors, {first.n_support} before training")
    strongest = abs(classifier.dual_coef_[0]).argsort()[::-1][:5]
    print("training images that weigh most:", classifier.support_[strongest].tolist())
    return score


if __name__ == "__main__":
    main()
