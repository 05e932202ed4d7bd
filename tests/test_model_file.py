import copy

import numpy as np
import pytest
import torch

import lmfcn
from lmfcn import LMFCNClassifier, make_gaussians
from lmfcn.model_file import KIND, VERSION, VERSION_WITH_CORRELATIONS, VERSION_WITH_SCALES, VERSION_WITH_TRUNK
from lmfcn.util.tensor_files import FileError, read_tensors, write_tensors
from some_training import classifier_of


def quick(**changes) -> LMFCNClassifier:
    options = {"latent_dim": 4, "widths": (6, 8), "epochs": 1, "passes": 1, "random_state": 0, "device": "cpu"}
    return classifier_of(**{**options, **changes})


@pytest.fixture(scope="module")
def saved(textures, tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "model.lmfcn"
    classifier = quick(deviations=False).fit(*textures)
    classifier.save(path)
    return classifier, path


@pytest.mark.parametrize("strategy", ["joint", "one-vs-all"])
@pytest.mark.parametrize(
    "classes",
    [
        ["b", "a", "c"],
        [3, -1, 7],
        [1.0, 2.0, 3.0],
        np.array(["x", "y", "z"], dtype=object),
        np.array([1, 2, 3], np.uint8),
    ],
    ids=["text", "numbers", "floats", "objects", "bytes"],
)
def test_bit_for_bit_after_loading(tmp_path, strategy, classes):
    images, labels = make_gaussians(12, 16, random_state=0)
    y = np.asarray(classes)[np.where(np.arange(24) % 4 == 0, 2, labels)]
    classifier = quick(strategy=strategy).fit(images, y)
    classifier.save(tmp_path / "model.lmfcn")
    model = lmfcn.load(tmp_path / "model.lmfcn")
    assert np.array_equal(model.decision_function(images), classifier.decision_function(images))
    assert np.array_equal(model.predict_proba(images), classifier.predict_proba(images))
    assert np.array_equal(model.transform(images), classifier.transform(images))
    assert np.array_equal(model.predict_set(images, 0.7), classifier.predict_set(images, 0.7))
    assert model.predict(images).tolist() == classifier.predict(images).tolist()
    assert model.classes.dtype == classifier.classes_.dtype


def test_the_file_tells_where_the_model_comes_from(saved):
    classifier, path = saved
    record = lmfcn.load(path).record
    assert record["parameters"]["latent_dim"] == 4
    assert record["versions"]["lmfcn"] == lmfcn.__version__
    assert record["data"]["n_train"] + record["data"]["n_validation"] == 32
    assert len(record["data"]["fingerprint"]) == 32
    assert len(record["histories"][0]) == 2
    assert record["best_epochs"] == [classifier.best_epoch_]


def test_saving_again_and_saving_a_loaded_model_gives_the_same_file(saved, tmp_path):
    lmfcn.model_file.save(lmfcn.load(saved[1]), tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == saved[1].read_bytes()


def test_the_training_images_are_not_in_the_file(saved, textures):
    content = saved[1].read_bytes()
    assert all(image.tobytes() not in content for image in textures[0])
    assert all(image[:4].tobytes() not in content for image in textures[0])


def test_two_classes_with_phi_16_are_under_500_kb(tmp_path):
    images, labels = make_gaussians(60, 16, random_state=0)
    classifier_of(latent_dim=16, epochs=1, passes=1, random_state=0).fit(images, labels).save(tmp_path / "m")
    assert (tmp_path / "m").stat().st_size < 500_000


def edited(path, tmp_path, change):
    """A copy of a model file with a right checksum and wrong content."""
    values, tensors = read_tensors(path, KIND, VERSION)
    values, tensors = copy.deepcopy(values), dict(tensors)
    change(values, tensors)
    write_tensors(tmp_path / "edited", KIND, VERSION, values, tensors)
    return tmp_path / "edited"


def put(place, value):
    def change(values, _):
        *way, last = place
        for name in way:
            values = values[name]
        values[last] = value

    return change


def put_tensor(name, tensor):
    return lambda _, tensors: tensors.update({name: tensor})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            put(["networks", "latent_dim"], 10**12),
            "latent_dim must be a whole number from 1 to 1000000, but is 1000000000000",
        ),
        (put(["networks", "latent_dim"], 5), "weights of network 0 do not have the shapes"),
        (put(["networks", "widths"], [10**6, 10**6]), "weights of network 0 do not have the shapes"),
        (put(["networks", "pooling"], ["all", "sum"]), r"unknown pooling, \['all', 'sum'\]"),
        (put(["networks", "pooling"], ["all", ["last"]]), "unknown pooling"),
        (put(["networks", "pooling"], ["all"]), "does not describe each of its networks"),
        (put(["networks", "pooling"], "last"), "does not describe each of its networks"),
        (put(["networks", "pooling"], ["last", "last"]), "parts of its decision do not fit"),
        (put(["networks", "deviations"], [False]), "does not describe each of its networks"),
        (put(["networks", "deviations"], {"0": False}), "does not describe each of its networks"),
        (put(["networks", "deviations"], [False, 1]), r"unknown pooling, .*\[False, 1, False, False\]"),
        (put(["networks", "deviations"], [True, False]), "parts of its decision do not fit"),
        (put(["networks", "correlations"], [True, False]), "correlations without standard deviations"),
        (put(["networks", "correlations"], [False]), "does not describe each of its networks"),
        (put(["networks", "reduction"], 2), "does not describe each of its networks"),
        (put(["networks", "reduction"], [1, 0]), "reduction must be a whole number from 1 to 1024, but is 0"),
        (put(["networks", "reduction"], [2048, 1]), "reduction must be a whole number from 1 to 1024, but is 2048"),
        (put(["networks", "reduction"], [1, True]), "reduction must be a whole number from 1 to 1024, but is True"),
        (put(["networks", "reduction"], [1, 16]), "is not a sound model"),
        (put(["networks", "widths"], []), "weights of network 0 do not have the shapes"),
        (
            lambda values, _: values["networks"].update(
                count=3,
                pooling=["all", "last", "last"],
                deviations=[False] * 3,
                correlations=[False] * 3,
                reduction=[1] * 3,
            ),
            "weights of network 2 do not have the shapes",
        ),
        (put(["networks", "count"], True), "count must be a whole number"),
        (put(["networks", "in_channels"], "1"), "in_channels must be a whole number"),
        (put(["gamma"], -1.0), "gamma must be a positive number, but is -1.0"),
        (put(["gamma"], "0.1"), "gamma must be a positive number"),
        (put(["calibration", "sharpness"], 0), "sharpness must be a positive number"),
        (put(["classes", "labels"], [0]), "labels are not what they say"),
        (put(["classes", "labels"], [0, 0]), "labels are not what they say"),
        (put(["classes", "labels"], [0, [1]]), "labels are not what they say"),
        (put(["classes", "labels"], [0, 1, 2]), "parts of its decision do not fit"),
        (put(["classes", "type"], "<U999999999"), "is not a sound model"),
        (put(["classes", "type"], "object"), "labels are not what they say"),
        (put(["form", "pixels"], "complex"), "pixels of an unknown kind"),
        (put(["form", "channels"], 3), "networks take 1 channels, its images have 3"),
        (put(["form", "frame", "color"], "shell"), "unknown treatment of images"),
        (put(["form", "frame", "color"], "rgb"), "it asks for rgb images with 1 channels"),
        (put(["form", "frame", "fit"], "resize"), "a size without a way to get there, or the reverse"),
        (put(["form", "frame"], {"color": "keep", "fit": "crop", "size": [0, 4]}), "size must be a whole number"),
        (put(["form", "frame"], {"color": "keep", "fit": "crop", "size": [10**6, 4]}), "size must be a whole number"),
        (put(["form", "frame"], {"color": "keep", "fit": "crop", "size": [4]}), "not height and width"),
        (put(["form", "row_shape"], ["-7", "0"]), "image_shape must be"),
        (put(["calibration", "held_out"], "false"), "does not say whether images were held out"),
        (put(["gamma"], 10**400), "is not a sound model"),
        (put(["classes"], {"type": "|u1", "labels": [300, 1]}), "is not a sound model"),
        (put(["classes"], {"type": "<U1", "labels": ["ab", "ac"]}), "labels are not what they say"),
        (put(["classes"], {"type": "<f4", "labels": [1.0, 1.00000000001]}), "labels are not what they say"),
        (put(["classes"], {"type": "<U250000", "labels": ["a", "b"]}), "labels ask for more memory than they need"),
        (put(["form", "frame", "extra"], 1), "is not a sound model"),
        (put(["form"], None), "is not a sound model"),
        (lambda values, _: values.pop("gamma"), "it has no 'gamma'"),
        (
            lambda _, tensors: tensors.pop("calibration.true_probabilities"),
            "it has no 'calibration.true_probabilities'",
        ),
        (lambda _, tensors: tensors.pop("decision.mean"), "parts of its decision do not fit"),
        (lambda _, tensors: tensors.pop("network-0.features.0.weight"), "weights of network 0"),
        (put_tensor("decision.std", torch.zeros(22)), "standard deviation that is not positive"),
        (put_tensor("decision.whitening", torch.zeros(22)), "parts of its decision do not fit"),
        (put_tensor("decision.whitening", torch.zeros(22, 0)), "parts of its decision do not fit"),
        (put_tensor("decision.whitening", torch.zeros(22, 22, dtype=torch.int64)), "parts that are not floating point"),
        (put_tensor("decision.whitening", torch.full((22, 22), 3e38)), "predictions are not finite"),
        (put_tensor("decision.extra", torch.zeros(4)), "parts of its decision do not fit"),
        (put_tensor("decision.intercepts", torch.zeros(1, dtype=torch.int64)), "parts that are not floating point"),
        (put_tensor("decision.std", torch.full((22,), 1e-45)), "predictions are not finite"),
        (put_tensor("calibration.true_probabilities", torch.zeros(2, 2, dtype=torch.float64)), "not a row of numbers"),
        (put_tensor("extra", torch.zeros(4)), r"tensors that do not belong there: \['extra'\]"),
        (put_tensor("network-0.features.1.running_var", -torch.ones(6)), "network 0 has a negative variance"),
        (put_tensor("network-0.features.0.weight", torch.full((6, 1, 3, 3), float("nan"))), "holds NaN or infinite"),
    ],
)
def test_a_file_with_wrong_content_is_refused_with_a_reason(saved, tmp_path, change, message):
    with pytest.raises(FileError, match=message):
        lmfcn.load(edited(saved[1], tmp_path, change))


def test_files_say_the_earliest_version_that_knows_their_networks(saved, textures, tmp_path):
    values, _ = read_tensors(saved[1], KIND, VERSION)
    assert values["networks"]["deviations"] == [False, False]
    quick(correlations=True).fit(*textures).save(tmp_path / "m")
    read_tensors(tmp_path / "m", KIND, VERSION_WITH_CORRELATIONS)
    quick(deviations=True, correlations=False).fit(*textures).save(tmp_path / "m")
    read_tensors(tmp_path / "m", KIND, VERSION_WITH_SCALES)
    with pytest.raises(FileError, match="version"):
        read_tensors(tmp_path / "m", KIND, VERSION, VERSION_WITH_TRUNK)


def test_a_file_of_an_earlier_version_is_read(saved, textures, tmp_path):
    def as_earlier(values, _):
        for name in ("deviations", "correlations", "reduction"):
            del values["networks"][name]

    model = lmfcn.load(edited(saved[1], tmp_path, as_earlier))
    assert np.array_equal(model.predict_proba(textures[0]), saved[0].predict_proba(textures[0]))


def test_a_checkpoint_is_not_a_model(tmp_path, textures):
    quick(checkpoint_dir=tmp_path).fit(*textures)
    (checkpoint,) = tmp_path.glob("*.safetensors")
    with pytest.raises(FileError, match="is not a file of the kind 'lmfcn model'; it says 'lmfcn checkpoint'"):
        lmfcn.load(checkpoint)


def test_labels_that_a_file_cannot_hold(saved, tmp_path):
    classifier = copy.deepcopy(saved[0])
    for labels in (np.array([b"a", b"b"]), np.array([(1,), None], dtype=object)):
        classifier.model_.classes = labels
        with pytest.raises(ValueError, match="labels that are text or numbers"):
            classifier.save(tmp_path / "m")
    assert list(tmp_path.iterdir()) == []


def test_saving_where_no_folder_is(saved, tmp_path):
    with pytest.raises(FileNotFoundError):
        saved[0].save(tmp_path / "nowhere" / "m.lmfcn")


def test_a_decision_in_half_precision_is_refused(textures, tmp_path):
    path = tmp_path / "model.lmfcn"
    LMFCNClassifier(latent_dim=4, widths=(6,), epochs=1, random_state=0, device="cpu").fit(*textures).save(path)
    values, tensors = read_tensors(path, KIND, VERSION, VERSION_WITH_SCALES)
    assert tensors["network-0.features.0.weight"].dtype == torch.float16
    assert tensors["decision.whitening"].dtype == torch.float16
    tensors["decision.mean"] = tensors["decision.mean"].half()
    write_tensors(path, KIND, VERSION, values, tensors)
    with pytest.raises(FileError, match="not floating point numbers of single or double precision"):
        lmfcn.load(path)
