import numpy as np
import pytest
from PIL import Image

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
    names = ["Fabric.0000.pnm", "Fabric.0001.pnm", "Misc.0003.pnm", "Bark.0000.pnm"]
    collection = STEX.load(save_images(tmp_path / "stex-512", names), binary=True)
    assert collection.labels.tolist() == ["fabric", "fabric", "misc"]
    assert collection.groups.tolist() == ["Fabric.0000", "Fabric.0001", "Misc.0003"]
    assert collection[0].shape == (9, 9, 3)


@pytest.mark.parametrize("name", ["{}.{:04}.{:02}.pnm", "{}_{:04}_{:02}.bmp"], ids=["as published", "a copy"])
def test_tiles_of_stex_are_grouped_by_texture(tmp_path, name):
    names = [name.format(kind, texture, tile) for kind in ("Fabric", "Misc") for texture in (0, 13) for tile in (0, 15)]
    collection = STEX.load(save_images(tmp_path / "stex-512-splitted", names))
    assert len(collection) == 8
    assert np.unique(collection.groups, return_counts=True)[1].tolist() == [2, 2, 2, 2]


@pytest.mark.filterwarnings("ignore:.*fewer images")
def test_a_patient_of_breakhis_with_two_labels_is_one_group(breakhis):
    assert {code.partition("-")[0] for code in BREAKHIS.load(breakhis).groups} == {"14"}
    both = [
        f"BreaKHis_v1/histology_slides/breast/malignant/SOB/{kind}/SOB_M_{code}_14-13412/100X/SOB_M_{code}-14-13412-100-026.png"
        for kind, code in (("ductal_carcinoma", "DC"), ("lobular_carcinoma", "LC"))
    ]
    save_images(breakhis, both)
    images = BREAKHIS.load(breakhis)
    assert images.labels[images.groups == "14-13412"].tolist() == ["ductal carcinoma", "lobular carcinoma"]


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
