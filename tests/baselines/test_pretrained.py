import pickle
from urllib.error import URLError

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from sklearn.decomposition import PCA

from lmfcn.baselines.pretrained import BACKBONES, Backbone, PretrainedSVC, load_backbone, preprocess

models = pytest.importorskip("torchvision.models")


def state_of(name, seed=1):
    """Weights of the real shape, with batch-norm statistics that are not those of a fresh network."""
    torch.manual_seed(seed)
    options = {"init_weights": False} if name == "inception_v3" else {}
    network = getattr(models, name)(weights=None, **options)
    state = network.state_dict()
    for key in state:
        if key.endswith("running_mean"):
            state[key] = torch.randn_like(state[key])
    return network, state


@pytest.fixture(scope="module")
def resnet_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("weights") / "resnet18.pth"
    torch.save(state_of("resnet18")[1], path)
    return path


@pytest.fixture
def small_side(monkeypatch):
    monkeypatch.setitem(BACKBONES, "resnet18", Backbone("resnet18", "ResNet18_Weights", 32, {}))


@pytest.mark.parametrize(("name", "side", "n_features"), [("resnet18", 224, 512), ("inception_v3", 299, 2048)])
def test_features_are_those_of_torchvision_before_its_last_layer(tmp_path, random, name, side, n_features):
    network, state = state_of(name)
    torch.save(state, tmp_path / "weights.pth")
    save_file(state, tmp_path / "weights.safetensors")
    network.load_state_dict(state)
    network.fc = torch.nn.Identity()
    if name == "inception_v3":
        network.transform_input = True  # as torchvision sets it with its own weights
    batch = preprocess(torch.from_numpy(random.random((1, 3, 40, 50), dtype=np.float32)), side)
    assert batch.shape == (1, 3, side, side)
    with torch.no_grad():
        expected = network.eval()(batch)
        assert expected.shape == (1, n_features)
        for suffix in ("pth", "safetensors"):
            loaded = load_backbone(name, str(tmp_path / f"weights.{suffix}"))
            # Channels last: the same sums in another order.
            torch.testing.assert_close(loaded(batch), expected, rtol=1e-4, atol=1e-5)


def test_images_are_normalised_as_in_the_training_of_the_networks():
    white = preprocess(torch.ones(1, 1, 8, 8), 16)
    assert white[0, :, 3, 3].tolist() == pytest.approx([(1 - 0.485) / 0.229, (1 - 0.456) / 0.224, (1 - 0.406) / 0.225])
    assert white.shape == (1, 3, 16, 16)


@pytest.mark.usefixtures("small_side")
def test_components_are_those_of_the_training_images(resnet_file, textures):
    images, labels = textures
    fitted = PretrainedSVC(weights=resnet_file, n_components=5, random_state=0, device="cpu").fit(images, labels)
    features = fitted._features(images[..., None]).numpy()
    expected = PCA(5, svd_solver="full").fit(features).transform(features)
    assert fitted.transform(images) == pytest.approx(expected, abs=1e-4)
    # No more components than images.
    assert (
        PretrainedSVC(weights=resnet_file, n_components=99, random_state=0).fit(images, labels).pca_.n_components == 32
    )


@pytest.mark.usefixtures("small_side")
def test_an_image_goes_through_the_network_once_in_a_fit(resnet_file, textures, monkeypatch):
    images, labels = textures
    seen = []
    features = PretrainedSVC._features
    monkeypatch.setattr(PretrainedSVC, "_features", lambda self, part: seen.append(len(part)) or features(self, part))
    PretrainedSVC(weights=resnet_file, random_state=0).fit(
        images[::2], labels[::2], validation=(images[1::2], labels[1::2])
    )
    assert seen == [16, 16]


def test_random_weights_come_from_the_seed():
    before = torch.get_rng_state()
    one, same, other = (load_backbone("resnet18", "random", seed) for seed in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(one.conv1.weight, same.conv1.weight)
    assert not torch.equal(one.conv1.weight, other.conv1.weight)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"expected a state dict of resnet18, but the file cannot be read"),
        (b"not weights at all", r"expected a state dict of resnet18, but the file cannot be read"),
        ({"conv1.weight": torch.zeros(3)}, r"the weights do not fit torchvision's resnet18"),
        (torch.zeros(3), r"the weights do not fit torchvision's resnet18"),
    ],
    ids=["empty", "text", "another network", "no dict"],
)
def test_files_that_are_not_weights(tmp_path, textures, content, message):
    path = tmp_path / "weights.pth"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        torch.save(content, path)
    with pytest.raises(ValueError, match=message):
        PretrainedSVC(weights=path).fit(*textures)


def test_a_pickle_that_runs_code_is_refused(tmp_path, textures):
    class Harmful:
        def __reduce__(self):
            return (open, (str(tmp_path / "written"), "w"))

    path = tmp_path / "weights.pth"
    path.write_bytes(pickle.dumps(Harmful()))
    with pytest.raises(ValueError, match="cannot be read"):
        PretrainedSVC(weights=path).fit(*textures)
    assert not (tmp_path / "written").exists()


def test_a_missing_file_and_bad_parameters(tmp_path, textures):
    with pytest.raises(FileNotFoundError, match="no such file; weights must be a file, 'download' or 'random'"):
        PretrainedSVC(weights=tmp_path / "none.pth").fit(*textures)
    with pytest.raises(ValueError, match="backbone must be one of 'resnet18', 'inception_v3', got 'vgg'"):
        PretrainedSVC(backbone="vgg", weights="random").fit(*textures)
    with pytest.raises(ValueError, match="n_components must be at least 1"):
        PretrainedSVC(n_components=0, weights="random").fit(*textures)


def test_weights_are_downloaded_only_when_asked(monkeypatch):
    asked, network = [], state_of("resnet18")[0]

    def build(weights=None, **_):
        asked.append(weights)
        return network

    monkeypatch.setattr(models, "resnet18", build)
    load_backbone("resnet18", "random")
    assert asked == [None]
    before = torch.get_rng_state()
    load_backbone("resnet18", "download")
    assert asked[1] is models.ResNet18_Weights.IMAGENET1K_V1
    assert torch.equal(torch.get_rng_state(), before)


def test_a_download_that_fails_says_what_to_do(monkeypatch):
    def build(**_):
        raise URLError("no network")

    monkeypatch.setattr(models, "resnet18", build)
    with pytest.raises(OSError, match=r"could not be fetched from https://.*no network.*give its\s+path as weights"):
        load_backbone("resnet18", "download")
