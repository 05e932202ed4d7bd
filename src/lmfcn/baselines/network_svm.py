"""An RBF SVM on the latents of a network that is untrained, or trained with another loss."""

from abc import abstractmethod
from typing import Any

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from lmfcn.baselines.cnn import CNNClassifier
from lmfcn.baselines.feature_svm import FeatureSVC
from lmfcn.baselines.network_training import Schedule, TrainedNetwork
from lmfcn.compute.encode import encode, refresh_and_encode
from lmfcn.compute.resources import check_device
from lmfcn.data.arrays import RandomState
from lmfcn.data.image_form import LoadedImages
from lmfcn.data.training_data import TrainingData
from lmfcn.method.network import POOLING, TextureFCN
from lmfcn.training.first_filters import FIRST_FILTERS, start_first_filters
from lmfcn.util.checks import check_choice, check_integer, check_widths


class NetworkSVC(FeatureSVC):
    """An RBF SVM on the latents of a `TextureFCN`."""

    latent_dim: int
    widths: tuple[int, ...]
    device: str
    network_: TextureFCN

    def _describe(self, images: LoadedImages) -> Tensor:
        return encode(self.network_, images, next(self.network_.parameters()).device)

    def _check_parameters(self) -> None:
        check_integer("latent_dim", self.latent_dim, smallest=1)
        check_widths(self.widths)


class RandomFCN(NetworkSVC):
    """The untrained network, its batch-norm statistics taken from the training images, with an RBF SVM (random-fcn).

    Random filters, rectified and averaged, already describe a texture well. The lead of LMFCN over this baseline is
    what training adds.

    Parameters
    ----------
    latent_dim : int, default=64
    widths : sequence of int, default=(64, 128)
    pooling : {"last", "all"}, default="last"
        Whether the latents are the means of the last layer's maps or those of all layers.
    first_filters : {"random", "decorrelated"}, default="random"
        As in `LMFCNClassifier`; with "decorrelated" and all layers, this is LMFCN without its training.
    validation_fraction : float, default=0
        Nothing is trained, so nothing needs to be held out; a given validation set joins the training images.
    image_shape : tuple of int, optional
    device : str, default="auto"
    random_state : None, int or NumPy generator, default=None
    verbose : bool, default=False

    Examples
    --------
    >>> from lmfcn import make_gaussians
    >>> X, y = make_gaussians(n_per_class=20, size=16, random_state=0)
    >>> RandomFCN(latent_dim=8, random_state=0).fit(X, y).transform(X).shape
    (40, 8)
    """

    def __init__(
        self,
        *,
        latent_dim: int = 64,
        widths: tuple[int, ...] = (64, 128),
        pooling: str = "last",
        first_filters: str = "random",
        validation_fraction: float = 0.0,
        image_shape: tuple[int, ...] | None = None,
        device: str = "auto",
        random_state: RandomState = None,
        verbose: bool = False,
    ) -> None:
        self.latent_dim = latent_dim
        self.widths = widths
        self.pooling = pooling
        self.first_filters = first_filters
        self.validation_fraction = validation_fraction
        self.image_shape = image_shape
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def _learn(self, data: TrainingData, random: np.random.Generator) -> None:
        device = check_device(self.device)
        generator = torch.Generator().manual_seed(int(random.integers(2**62)))
        network = TextureFCN(
            data.form.channels, self.latent_dim, tuple(self.widths), pooling=self.pooling, generator=generator
        )
        start_first_filters(network, self.first_filters, data.train.images)
        self.network_ = network.to(device)
        refresh_and_encode(self.network_, data.train.images, device)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_choice("pooling", self.pooling, POOLING)
        check_choice("first_filters", self.first_filters, FIRST_FILTERS)


class TrainedNetworkSVC(NetworkSVC):
    """An RBF SVM on the latents of a network that was trained on every image.

    Attributes
    ----------
    network_, history_, best_epoch_, n_iter_
        As in `CNNClassifier`.
    """

    learns_features = True

    def __init__(
        self,
        *,
        latent_dim: int = 64,
        widths: tuple[int, ...] = (64, 128),
        epochs: int | None = None,
        patience: int | None = None,
        batch_size: int = 32,
        learning_rate: float = 3e-4,
        weight_decay: float = 1e-2,
        first_filters: str = "random",
        augmentation: str = "none",
        validation_fraction: float = 0.2,
        image_shape: tuple[int, ...] | None = None,
        device: str = "auto",
        random_state: RandomState = None,
        verbose: bool = False,
    ) -> None:
        self.latent_dim = latent_dim
        self.widths = widths
        self.epochs = epochs
        self.patience = patience
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.first_filters = first_filters
        self.augmentation = augmentation
        self.validation_fraction = validation_fraction
        self.image_shape = image_shape
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    @abstractmethod
    def _train(self, data: TrainingData, generator: torch.Generator) -> TrainedNetwork:
        """Train the network."""

    def _learn(self, data: TrainingData, random: np.random.Generator) -> None:
        trained = self._train(data, torch.Generator().manual_seed(int(random.integers(2**62))))
        self.network_, self.history_, self.best_epoch_ = trained.network, trained.history, trained.best_epoch
        self.n_iter_ = len(trained.history) - 1

    @property
    def _schedule(self) -> Schedule:
        return Schedule(
            self.epochs, self.batch_size, self.learning_rate, self.weight_decay, self.patience, self.augmentation
        )

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_choice("first_filters", self.first_filters, FIRST_FILTERS)
        self._schedule.check()


class CNNSVC(TrainedNetworkSVC):
    """The latents of the cross-entropy CNN with an RBF SVM on top (CNN + SVM).

    Parameters
    ----------
    latent_dim, widths, epochs, patience, batch_size, learning_rate, weight_decay, first_filters
        As in `CNNClassifier`, with the same defaults.
    augmentation, validation_fraction, image_shape, device, random_state, verbose
        Likewise.

    Examples
    --------
    >>> from lmfcn import make_gaussians
    >>> X, y = make_gaussians(n_per_class=20, size=16, random_state=0)
    >>> CNNSVC(epochs=2, latent_dim=8, random_state=0).fit(X, y).predict(X).shape
    (40,)
    """

    _fitted_cnn: CNNClassifier | None = None

    def fit_on(self, cnn: CNNClassifier, X: Any, y: Any = None, groups: Any = None, validation: Any = None) -> "CNNSVC":
        """Fit on the network of a CNN that has been fitted already.

        With the images, the parameters and the seed of that CNN, the result is the same as that of `fit`, which
        would train the same network again.
        """
        check_is_fitted(cnn, "network_")
        self._fitted_cnn = cnn
        try:
            self.fit(X, y, groups=groups, validation=validation)
        finally:
            del self._fitted_cnn
        return self

    def _learn(self, data: TrainingData, random: np.random.Generator) -> None:
        if self._fitted_cnn is None:
            super()._learn(data, random)
            return
        random.integers(2**62)  # the seed of the training: the next draws are then the same as in `fit`
        network: Any = self._fitted_cnn.network_[0]
        self.network_, self.history_, self.best_epoch_ = (
            network,
            self._fitted_cnn.history_,
            self._fitted_cnn.best_epoch_,
        )
        self.n_iter_ = self._fitted_cnn.n_iter_

    def _train(self, data: TrainingData, generator: torch.Generator) -> TrainedNetwork:
        return CNNClassifier(**self._cnn_parameters()).train_network(data, generator)

    def _cnn_parameters(self) -> dict[str, Any]:
        return self.get_params(deep=False)
