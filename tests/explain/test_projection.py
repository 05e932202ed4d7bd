import numpy as np

from lmfcn.explain.projection import Projection


def test_it_is_the_plane_of_most_variance(random):
    latents = random.normal(size=(50, 6)) * [5, 1, 1, 3, 1, 1] + 7
    plane = Projection.of(latents)
    centred = latents - latents.mean(axis=0)
    values = np.linalg.svd(centred, compute_uv=False)
    places = plane.place(latents)
    assert np.allclose(np.square(places).sum(axis=0), np.square(values[:2]))
    assert np.allclose(plane.axes @ plane.axes.T, np.eye(2))
    assert np.allclose(plane.shares, np.square(values[:2]) / np.square(values).sum(), atol=1e-6)
    assert (plane.axes[np.arange(2), abs(plane.axes).argmax(axis=1)] > 0).all()


def test_one_feature_and_latents_without_spread():
    assert Projection.of(np.array([[1.0], [3.0]])).place(np.array([[3.0]])).tolist() == [[1.0, 0.0]]
    flat = Projection.of(np.ones((3, 4)))
    assert flat.shares == (0.0, 0.0)
    assert np.allclose(flat.place(np.ones((1, 4))), 0)
