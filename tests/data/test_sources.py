import numpy as np
import pytest
from PIL import Image

from lmfcn.data.sources import from_folder, from_lists, open_collection


@pytest.fixture
def tree(tmp_path):
    """Folders bark/ and wood/oak/, a hidden file and a text file."""
    for i, name in enumerate(["bark/b1.png", "bark/b2.JPG", "wood/w1.tif", "wood/oak/w2.bmp"]):
        path = tmp_path / "data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((9, 9), 40 * i, np.uint8)).save(path)
    (tmp_path / "data" / "bark" / ".hidden.png").write_bytes(b"x")
    (tmp_path / "data" / "bark" / "readme.txt").write_text("not an image")
    (tmp_path / "data" / ".cache").mkdir()
    return tmp_path / "data"


def names(collection):
    return [path.rsplit("/", 1)[1] for path in collection.paths]


def test_a_folder_of_class_folders_nested(tree):
    collection = open_collection(tree)
    assert names(collection) == ["b1.png", "b2.JPG", "w2.bmp", "w1.tif"]
    assert collection.labels.tolist() == ["bark", "bark", "wood", "wood"]
    assert collection.to_array().shape == (4, 9, 9, 1)


def test_folders_without_classes_are_explained(tmp_path, tree):
    with pytest.raises(ValueError, match="must hold one folder of images per class, but no image was found in it"):
        from_folder(tmp_path / "data" / ".cache")
    with pytest.raises(ValueError, match="the 1 images in it are in no class folder"):
        from_folder(tree / "wood" / "oak")
    with pytest.raises(ValueError, match="is not a folder"):
        from_folder(tree / "bark" / "b1.png")
    with pytest.raises(ValueError, match="does not exist"):
        open_collection(tmp_path / "nothing")


@pytest.mark.parametrize(("separator", "ending"), [(",", "csv"), (";", "csv"), ("\t", "tsv")])
def test_tables_with_paths_relative_to_them(tree, separator, ending):
    rows = [
        ("Path", "label", "group", "split"),
        ("bark/b1.png", "1", "p1", "train"),
        ("wood/w1.tif", "2", "p2", "test"),
    ]
    table = tree / f"images.{ending}"
    table.write_text("\ufeff" + "\n".join(separator.join(row) for row in rows) + "\n")
    collection = open_collection(table)
    assert names(collection) == ["b1.png", "w1.tif"]
    assert collection.labels.tolist() == ["1", "2"]
    assert collection.groups.tolist() == ["p1", "p2"]
    assert len(collection.part("test")) == 1
    assert collection[0].shape == (9, 9, 1)


def test_a_table_in_the_folder_is_used(tree):
    (tree / "groups.csv").write_text("path,label,group\nbark/b1.png,bark,1\nwood/w1.tif,wood,2\n")
    assert open_collection(tree).groups.tolist() == ["1", "2"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("path,label\n", "has no rows below its header"),
        ("file,label\na.png,1\n", r"must have a column 'path', got the columns \['file', 'label'\]"),
        ("path,label\na.png,1\nb.png,\n", "line 3: the column 'label' is empty"),
    ],
)
def test_bad_tables_are_explained(tmp_path, text, message):
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(ValueError, match=message):
        open_collection(tmp_path / "t.csv")


def test_lists_of_the_papers_authors(tree):
    (tree / "train.txt").write_text("0;bark/b1.png\n1;wood/w1.tif\n\n")
    (tree / "val.txt").write_text("0;bark/b2.JPG\n")
    (tree / "test.txt").write_text("1;wood/oak/w2.bmp\n")
    collection = open_collection(tree)
    assert sorted(zip(collection.split, collection.labels, names(collection), strict=True)) == [
        ("test", "1", "w2.bmp"),
        ("train", "0", "b1.png"),
        ("train", "1", "w1.tif"),
        ("val", "0", "b2.JPG"),
    ]
    assert len(open_collection(tree / "val.txt")) == 1


def test_bad_lists_are_explained(tmp_path):
    (tmp_path / "train.txt").write_text("0;a.png\njust a path.png\n")
    with pytest.raises(ValueError, match=r"train\.txt, line 2: expected class;path, got 'just a path\.png'"):
        from_lists([tmp_path / "train.txt"])
    (tmp_path / "train.txt").write_text("\n")
    with pytest.raises(ValueError, match="No image is listed"):
        from_lists([tmp_path / "train.txt"])


def test_arrays_from_npz(tmp_path, random):
    images = random.integers(0, 255, (4, 9, 9, 2)).astype(np.uint8)
    np.savez(tmp_path / "a.npz", X=images, y=[0, 1, 0, 1], groups=[1, 1, 2, 2])
    collection = open_collection(tmp_path / "a.npz")
    assert np.array_equal(collection.to_array(), images)
    assert collection.labels.tolist() == [0, 1, 0, 1]
    assert collection.groups.tolist() == [1, 1, 2, 2]


@pytest.mark.parametrize("name", ["labels.csv", "train.txt"])
def test_tables_in_another_encoding_are_named(tmp_path, name):
    (tmp_path / name).write_bytes("path,label\na.png,M\xf6bel\n".encode("latin-1"))
    with pytest.raises(ValueError, match=rf"{name} is not UTF-8 text \(byte 18\); save it with that encoding"):
        open_collection(tmp_path)


def test_a_table_that_is_no_csv_is_named(tmp_path):
    (tmp_path / "labels.csv").write_text("path,label\na.png," + "x" * 200_000)
    with pytest.raises(
        ValueError, match=r"labels\.csv is not a readable table \(field larger .*\); save it as CSV again"
    ):
        open_collection(tmp_path)


def test_a_damaged_archive_of_arrays_is_refused(tmp_path):
    np.savez_compressed(tmp_path / "a.npz", X=np.arange(400).reshape(4, 10, 10))
    content = bytearray((tmp_path / "a.npz").read_bytes())
    content[60:90] = bytes([255]) * 30
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(ValueError, match=r"a\.npz is not a readable \.npz file"):
        open_collection(tmp_path / "a.npz")


def test_bad_npz_and_unknown_files(tmp_path):
    np.savez(tmp_path / "other.npz", pictures=np.zeros(3))
    with pytest.raises(ValueError, match=r"must hold an array 'images' or 'X', got \['pictures'\]"):
        open_collection(tmp_path / "other.npz")
    np.savez(tmp_path / "evil.npz", X=np.array([{"a": 1}], dtype=object))
    with pytest.raises(ValueError, match=r"not a readable \.npz file of plain arrays"):
        open_collection(tmp_path / "evil.npz")
    (tmp_path / "cut.npz").write_bytes(b"PK\x03\x04 nothing")
    with pytest.raises(ValueError, match=r"not a readable \.npz file"):
        open_collection(tmp_path / "cut.npz")
    (tmp_path / "a.docx").write_bytes(b"")
    with pytest.raises(ValueError, match=r"neither a folder nor a \.csv"):
        open_collection(tmp_path / "a.docx")


def test_groups_from_file_names(tmp_path):
    for name in ("a/exp1_num_7.png", "a/exp2_num_8.png", "b/exp3_num_7.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        Image.new("L", (8, 8)).save(tmp_path / name)
    assert open_collection(tmp_path, group_pattern=r"exp\d+_num_(\d+)").groups.tolist() == ["7", "8", "7"]
    both = open_collection(tmp_path, group_pattern=r"exp(\d+)_num_(\d+)")
    assert both.groups.tolist() == ["1-7", "2-8", "3-7"]
    with pytest.raises(ValueError, match="from a column or from file names, not from both"):
        open_collection(tmp_path, group_pattern="(a)", group_column="patient")
