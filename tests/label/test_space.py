import numpy as np
import torch

from lmfcn.label.space import arrange, ask_for, coordinates_of, doubts
from lmfcn.method.kernel_svm import squared_distances


def test_coordinates_keep_distances(random):
    features = random.normal(size=(30, 400)) * random.uniform(0.1, 9, 400)
    features[:, 7] = 3.0
    found = coordinates_of(features)
    assert found.shape == (30, 29)
    scaled = torch.from_numpy((features - features.mean(0)) / np.where(features.std(0) > 1e-9, features.std(0), 1))
    assert torch.allclose(squared_distances(found), squared_distances(scaled), atol=1e-6)
    assert torch.equal(found, coordinates_of(features))


def test_the_order_keeps_clusters_together(clusters):
    coordinates, numbers = clusters
    shuffled = np.random.default_rng(1).permutation(40)
    found = arrange(coordinates[shuffled])
    ordered = numbers[shuffled][found.order]
    assert (np.diff(ordered) != 0).sum() == 1
    assert (np.diff(found.clusters[found.order]) >= 0).all()
    assert all(len(set(numbers[shuffled][found.clusters == cluster])) == 1 for cluster in set(found.clusters))


def test_asked_images_are_spread_and_near_the_margin():
    places = torch.tensor([[0.0], [0.1], [0.3], [5.0], [5.1], [9.0]], dtype=torch.float64)
    everyone, nobody = np.arange(6), np.array([], dtype=int)
    assert sorted(ask_for(places, everyone, nobody, np.ones(6), 3) // 3) == [0, 1, 1]
    asked = ask_for(places, everyone[1:], np.array([0]), np.array([0, 1, 1, 0.01, 0.01, 0]), 1)
    assert asked.tolist() == [2]
    assert ask_for(places, nobody, everyone, np.ones(6), 3).tolist() == []
    assert sorted(ask_for(places, everyone, nobody, np.ones(6), 99).tolist()) == list(range(6))


def test_doubts_by_hand():
    assert doubts(np.array([[0.2, 0.5, 0.3], [1.0, 0.0, 0.0]])).round(3).tolist() == [0.8, 0.0]
