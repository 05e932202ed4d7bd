from collections import Counter

import pytest

from lmfcn.experiments.paper.printed import TITLES, printed_rows


def test_every_row_of_the_three_tables_is_there():
    rows = printed_rows()
    assert Counter(row.table for row in rows) == {2: 25, 3: 22, 4: 21}
    assert set(TITLES) == {2, 3, 4}
    assert len({(row.table, row.images, row.method) for row in rows}) == len(rows)
    assert list(dict.fromkeys(row.images for row in rows if row.table == 3)) == [
        *("BACH", "BreaKHis", "CRC", "Salzburg", "Gaussian")
    ]
    assert [row.method for row in rows if row.table == 4 and row.images == "CRC"] == [
        *("LMFCN", "CNN", "GLCM", "LBP", "PFTAS", "ResNet18", "InceptionV3")
    ]
    wide = [row.images for row in rows if row.method == "LMFCN-162"]
    assert wide == ["BACH", "BreaKHis"]


@pytest.mark.parametrize(  # copied by eye from the paper's source
    ("table", "images", "method", "figures", "epoch"),
    [
        (2, "BACH", "LMFCN", (0.8811, 0.0426, 0.7857, 0.0221, 0.8056, 0.0203), 6),
        (2, "BreaKHis", "CNN-CE", (0.8926, 0.0092, 0.9122, 0.0226, 0.8926, 0.0140), 91),
        (2, "CRC", "CNN-H", (0.9928, 0.0038, 0.9924, 0.0027, 0.9928, 0.0070), 30),
        (2, "Salzburg", "ResNet18", (0.9946, 0.0033, 0.9046, 0.0221, 0.8932, 0.0088), None),
        (2, "Gaussian", "LMFCN", (1.0, 0.0, 1.0, 0.0, 0.9990, 0.0022), 2),
        (2, "Gaussian", "CNN-CE", (0.9950, 0.0061, 1.0, 0.0, 1.0, 0.0), 72),
        (2, "Gaussian", "InceptionV3", (0.5102, 0.0235, 0.5311, 0.0185, 0.5021, 0.0258), None),
        (3, "BACH", "LMFCN-162", (1.0, 0.0, 0.8068, 0.0600, 0.7934, 0.0536), None),
        (3, "CRC", "GLCM", (0.9864, 0.0036, 0.9828, 0.0055, 0.9853, 0.0101), None),
        (3, "Salzburg", "LBP", (0.9987, 0.0012, 0.9282, 0.0209, 0.9116, 0.0208), None),
        (3, "Gaussian", "LMFCN-59", (1.0, 0.0, 0.9354, 0.1254, 0.9880, 0.0121), None),
        (3, "Gaussian", "PFTAS", (0.5578, 0.0080, 0.5953, 0.0077, 0.5608, 0.0076), None),
        (4, "BACH", "PFTAS", (0.6229, 0.0146, 0.5690, 0.0464, 0.6043, 0.0235), None),
        (4, "BreaKHis", "InceptionV3", (0.1848, 0.0182, 0.1745, 0.0194, 0.1767, 0.0123), None),
        (4, "CRC", "CNN", (0.7209, 0.2614, 0.3946, 0.0453, 0.3901, 0.0402), None),
    ],
)
def test_figures_are_the_papers(table, images, method, figures, epoch):
    (row,) = (row for row in printed_rows() if (row.table, row.images, row.method) == (table, images, method))
    found = [number for part in (row.train, row.validation, row.test) for number in (part.mean, part.deviation)]
    assert tuple(found) == figures
    assert row.epoch == epoch
    assert row.test.n == 5
