import numpy as np
import pytest
from PIL import Image

from lmfcn import make_gaussians
from lmfcn.data.arrays import as_generator
from lmfcn.data.datasets import BACH, BREAKHIS, CRC, PUBLISHED, STEX, load_photographed_textures
from lmfcn.data.leaks import find_duplicates


def save_images(root, names):
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.zeros((9, 9, 3), np.uint8)).save(path)
    return root


BREAKHIS_CODES = {
    "benign": {"adenosis": "A", "fibroadenoma": "F", "phyllodes_tumor": "PT", "tubular_adenoma": "TA"},
    "malignant": {
        "ductal_carcinoma": "DC",
        "lobular_carcinoma": "LC",
        "mucinous_carcinoma": "MC",
        "papillary_carcinoma": "PC",
    },
}


@pytest.fixture
def breakhis(tmp_path):
    names = []
    for group, kinds in BREAKHIS_CODES.items():
        for kind, code in kinds.items():
            for zoom in (40, 200):
                slide = f"SOB_{group[0].upper()}_{code}_14-22549AB"
                file = f"SOB_{group[0].upper()}_{code}-14-22549AB-{zoom}-001.png"
                names.append(f"BreaKHis_v1/histology_slides/breast/{group}/SOB/{kind}/{slide}/{zoom}X/{file}")
    return save_images(tmp_path, names)


@pytest.mark.filterwarnings("ignore:.*fewer images")
def test_breakhis(breakhis):
    full = BREAKHIS.load(breakhis)
    assert len(full) == 16
    assert len(set(full.labels)) == 8
    assert set(full.groups) == {"14-22549AB"}
    binary = BREAKHIS.load(breakhis, binary=True, only="200X")
    assert len(binary) == 8
    assert sorted(set(binary.labels)) == ["benign", "malignant"]
    assert all("/200X/" in path for path in binary.paths)


@pytest.mark.filterwarnings("ignore:.*fewer images")
def test_bach(tmp_path):
    root = save_images(
        tmp_path / "ICIAR2018_BACH_Challenge" / "Photos",
        ["Normal/n001.tif", "Benign/b001.tif", "InSitu/is001.tif", "Invasive/iv001.tif"],
    )
    full = BACH.load(root)
    assert sorted(full.labels) == ["benign", "in situ", "invasive", "normal"]
    assert full.groups is None
    assert sorted(BACH.load(root, binary=True).labels) == ["cancer", "cancer", "non-cancer", "non-cancer"]


@pytest.mark.filterwarnings("ignore:.*fewer images")
def test_crc(tmp_path):
    kinds = ["01_TUMOR", "02_STROMA", "03_COMPLEX", "04_LYMPHO", "05_DEBRIS", "06_MUCOSA", "07_ADIPOSE", "08_EMPTY"]
    names = [f"{kind}/1A11_CRC-Prim-HE-0{i + 1}_022.tif_Row_601_Col_151.tif" for i, kind in enumerate(kinds)]
    root = save_images(tmp_path / "Kather_texture_2016_image_tiles_5000", names)
    full = CRC.load(root)
    assert len(set(full.labels)) == len(set(full.groups)) == 8
    binary = CRC.load(root, binary=True)
    assert sorted(binary.labels) == ["stroma", "tumor"]
    assert binary.groups.tolist() == ["CRC-Prim-HE-01", "CRC-Prim-HE-02"]


def test_stex(tmp_path):
    root = save_images(tmp_path / "stex-512", ["Fabric_0000.ppm", "Fabric_0001.ppm", "Misc_0003.ppm", "Bark_0000.ppm"])
    collection = STEX.load(root, binary=True)
    assert collection.labels.tolist() == ["fabric", "fabric", "misc"]
    assert collection.groups.tolist() == ["Fabric_0000", "Fabric_0001", "Misc_0003"]
    assert collection[0].shape == (9, 9, 3)


@pytest.mark.parametrize("name", PUBLISHED)
def test_missing_trees_say_where_the_data_come_from(tmp_path, name):
    published = PUBLISHED[name]
    with pytest.raises(ValueError, match="is not a folder") as caught:
        published.load(tmp_path / "nowhere")
    assert published.origin in str(caught.value)
    with pytest.raises(ValueError, match=r"is not a complete copy of .*no images of"):
        published.load(tmp_path)
    assert set(published.binary) <= set(published.classes.values())


def test_incomplete_trees_say_what_is_missing(tmp_path):
    root = save_images(tmp_path / "Photos", ["Normal/n001.tif", "Benign/b001.tif", "InSitu/is001.tif"])
    with pytest.raises(ValueError, match="no images of invasive; found"):
        BACH.load(root)
    save_images(root, ["Invasive/iv001.tif"])
    with pytest.warns(UserWarning, match="has fewer images than BACH .*normal 1 of 100"):
        BACH.load(root)


def test_photographed_textures_have_disjoint_parts():
    collection = load_photographed_textures(64)
    assert sorted(set(collection.labels)) == ["brick", "grass", "gravel"]
    assert {part: len(collection.part(part)) for part in ("train", "val", "test")} == {
        "train": 96,
        "val": 48,
        "test": 48,
    }
    assert find_duplicates(collection).identical_pixels == []
    with pytest.raises(ValueError, match="between 8 and 128 pixels, got 200"):
        load_photographed_textures(200)


def test_shapes_types_and_counts():
    images, labels = make_gaussians(5, 20, random_state=0)
    assert images.shape == (10, 20, 20)
    assert images.dtype == np.uint8
    assert np.bincount(labels).tolist() == [5, 5]
    colour, _ = make_gaussians(2, (16, 24), random_state=0, channels=3)
    assert colour.shape == (4, 16, 24, 3)


def test_same_seed_same_images_and_other_seed_other_images():
    one, same, other = (make_gaussians(3, 16, random_state=seed)[0] for seed in (1, 1, 2))
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)


def test_stripes_by_hand():
    # No turn and no noise: bands of 0.4, 0.7, 1.0, 0.7 times 256, whatever the offset.
    images, _ = make_gaussians(1, 8, random_state=0, max_angle=0, noise_weight=0.0)
    row = images[0, 0].tolist()
    assert set(row) == {102, 179, 255}
    assert row[:4] == row[4:]
    start = row.index(102)
    assert [row[(start + i) % 8] for i in range(4)] == [102, 179, 255, 179]
    assert (images[0] == images[0, 0]).all()


def test_noise_has_the_mean_and_deviation_of_its_class():
    images, labels = make_gaussians(20, 64, random_state=0, noise_weight=1.0)
    for label, (mean, std) in enumerate([(128, 30), (125, 35)]):
        pixels = images[labels == label].astype(float)
        assert pixels.mean() == pytest.approx(mean, abs=0.7)  # cut off to whole grey levels: half a level less
        assert pixels.std() == pytest.approx(std, abs=0.7)


def test_noise_has_a_quarter_of_the_weight():
    flat, _ = make_gaussians(10, 64, random_state=0, pattern=(0.5,), stds=(30, 30), means=(128, 128))
    assert flat.mean() == pytest.approx(0.75 * 128 + 0.25 * 128 - 0.5, abs=0.2)
    assert flat.std() == pytest.approx(0.25 * 30, abs=0.2)


def test_stripes_turn_without_empty_corners():
    images, _ = make_gaussians(50, 32, random_state=0, noise_weight=0.0)
    assert images.min() >= 102
    turned = [not (image == image[0]).all() for image in images]
    assert np.mean(turned) > 0.9


def test_more_classes_by_more_means():
    _, labels = make_gaussians(2, 8, random_state=0, means=(100, 120, 140), stds=(10, 10, 10))
    assert np.bincount(labels).tolist() == [2, 2, 2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_per_class": 0}, "n_per_class must be a whole number of at least 1, got 0"),
        ({"n_per_class": 2.5}, "n_per_class must be a whole number of at least 1, got 2.5"),
        ({"size": 0}, "positive number of pixels, or height and width, got 0"),
        ({"size": (8,)}, "positive number of pixels, or height and width"),
        ({"channels": 0}, "channels must be a whole number of at least 1, got 0"),
        ({"max_angle": float("nan")}, "max_angle must be between 0 and 180"),
        ({"means": (1, 2, 3)}, "one entry per class each, got 3 and 2"),
        ({"stds": (1, -2)}, "stds not negative, got"),
        ({"pattern": ()}, "at least one band"),
        ({"noise_weight": 1.5}, "between 0 and 1, got 1.5"),
        ({"random_state": "x"}, "random_state must be None"),
        ({"random_state": -1}, "random_state must be None, a non-negative int"),
    ],
)
def test_bad_arguments_are_refused_with_a_reason(arguments, message):
    with pytest.raises(ValueError, match=message):
        make_gaussians(**{"n_per_class": 2, "size": 8, **arguments})


def test_generators_pass_through_and_global_state_is_left_alone():
    before = np.random.get_state()[1].copy()
    generator = np.random.default_rng(0)
    assert as_generator(generator) is generator
    as_generator(None).random()
    assert as_generator(np.random.RandomState(3)).random() == as_generator(np.random.RandomState(3)).random()
    assert np.array_equal(np.random.get_state()[1], before)
