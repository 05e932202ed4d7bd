"""A network of your own in front of LMFCN: it stays as it is, LMFCN learns on its maps.

python examples/own_network.py [FOLDER]
"""

import sys
from pathlib import Path

import torch
from torch import Tensor, nn

import lmfcn
from lmfcn import LMFCNClassifier, make_gaussians


class OwnNetwork(nn.Module):
    """Three convolutions; `lmfcn.networks.trunk.check_network` lists what else a network may have."""

    in_channels = 3  # grey images are repeated
    input_size = 64  # images are brought to this size; the maps of the last stage have an eighth of it
    step = 8

    def __init__(self) -> None:
        super().__init__()
        channels = (3, 8, 16, 32)
        self.layers = nn.ModuleList(nn.Conv2d(channels[i], channels[i + 1], 3, 2, 1) for i in range(3))

    def stages(self, batch: Tensor) -> list[Tensor]:
        """Return the maps (b, c, h, w) of every layer."""
        found = []
        for layer in self.layers:
            batch = layer(batch).relu()
            found.append(batch)
        return found


# A pretrained network of timm takes as many lines:
#
# class TimmNetwork(nn.Module):
#     in_channels, input_size, step = 3, 224, 32
#     mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of the pixels that it was trained on
#     name, licence = "timm/resnet18", "Apache-2.0"  # for the record of the model
#
#     def __init__(self) -> None:
#         super().__init__()
#         self.body = timm.create_model("resnet18", pretrained=True, features_only=True)
#
#     def stages(self, batch: Tensor) -> list[Tensor]:
#         return self.body(batch)


def main(folder: Path, n_per_class: int = 40, size: int = 64, epochs: int = 3) -> float:
    """Train behind the own network, save, load, and return the accuracy on new images."""
    with torch.random.fork_rng():
        torch.manual_seed(0)  # a network with pretrained weights does not need this
        network = OwnNetwork()
    X, y = make_gaussians(n_per_class, size, random_state=0, stds=(10, 60))
    X_new, y_new = make_gaussians(n_per_class, size, random_state=1, stds=(10, 60))
    classifier = LMFCNClassifier(network=network, epochs=epochs, random_state=0, verbose=True).fit(X, y)
    classifier.save(folder / "model.lmfcn")

    # The file holds what was learnt and a hash of the network's weights, but not the network itself.
    model = lmfcn.load(folder / "model.lmfcn", network=network)
    accuracy = float((model.predict(X_new) == y_new).mean())
    print(f"accuracy on new images: {accuracy:.3f}; features of the network: {model.trunk.n_features}")
    return accuracy


if __name__ == "__main__":
    target = Path(sys.argv[1] if len(sys.argv) > 1 else "own_network")
    target.mkdir(exist_ok=True)
    main(target)
