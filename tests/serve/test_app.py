import base64
import io
from concurrent.futures import ThreadPoolExecutor

import httpx
import numpy as np
import pytest
import torch
from PIL import Image

from lmfcn.explain.explanation import explain
from lmfcn.explain.gallery import Gallery
from lmfcn.serve.app import make_app
from lmfcn.serve.uploads import Limits
from serving import as_files, content, running
from small_trunk import trunk_classifier, trunk_images


def test_answers_are_those_of_the_model_in_the_order_of_the_files(client, fitted):
    numbers = [5, 0, 12, 3]
    response = client.post("/predict", files=as_files(fitted, numbers))
    assert response.status_code == 200
    answers = response.json()["answers"]
    assert [answer["name"] for answer in answers] == [f"{i}.png" for i in numbers]
    expected = fitted.model.predict_proba(fitted.images[numbers])
    sets = fitted.model.predict_set(fitted.images[numbers], coverage=0.9)
    usual = fitted.model.typicality(fitted.images[numbers])
    for answer, chances, inside, share in zip(answers, expected, sets, usual, strict=True):
        by_class = dict(zip(fitted.model.classes.tolist(), chances.tolist(), strict=True))
        assert answer["probabilities"] == pytest.approx(by_class, abs=1e-6)
        assert answer["label"] == max(by_class, key=by_class.get)
        assert next(iter(answer["probabilities"])) == answer["label"]
        assert answer["typicality"] == share
        assert answer["prediction_set"] == fitted.model.classes[inside].tolist()
        assert answer["reasons"] is None


def test_reasons_sum_to_the_decision_value_and_show_pictures(client, fitted):
    response = client.post("/predict", params={"reasons": True}, files=as_files(fitted, [2]))
    (answer,) = response.json()["answers"]
    reasons, expected = answer["reasons"], explain(fitted.model, fitted.images[2], fitted.gallery)
    weights = [image["weight"] for image in reasons["in_favour"] + reasons["against"]]
    assert sum(weights) + reasons["rest"] + reasons["intercept"] == pytest.approx(reasons["value"], abs=1e-9)
    assert reasons["value"] == pytest.approx(expected.value, abs=1e-6)
    assert [image["name"] for image in reasons["in_favour"]] == [image.name for image in expected.supporting]
    assert reasons["place"] == pytest.approx(expected.coordinates, abs=1e-5)
    assert [near["image"] for near in reasons["neighbours"]] == fitted.gallery.nearest(expected.latent, 6).tolist()
    assert opened(reasons["map"]).size == (256, 256)
    assert np.array_equal(np.asarray(opened(reasons["picture"]).convert("L")), fitted.images[2])
    first = reasons["in_favour"][0]
    assert opened(first["picture"]).format == "JPEG"
    assert first["label"] == answer["label"]


def opened(address: str) -> Image.Image:
    return Image.open(io.BytesIO(base64.b64decode(address.partition(",")[2])))


def test_several_requests_at_once_keep_their_answers_apart(address, fitted):
    expected = fitted.model.predict_proba(fitted.images).max(axis=1)

    def ask(i):
        with httpx.Client(base_url=address, timeout=60) as own:
            (answer,) = own.post("/predict", params={"reasons": i % 2}, files=as_files(fitted, [i])).json()["answers"]
        return answer["name"], max(answer["probabilities"].values())

    numbers = [*range(16), *range(16)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(ask, numbers))
    assert len(set(expected.round(6))) > 8  # answers can be told apart
    for i, (name, chance) in zip(numbers, found, strict=True):
        assert name == f"{i}.png"
        assert chance == pytest.approx(expected[i], abs=1e-6)


def test_the_model_and_its_training_images_are_described(client, fitted):
    card = client.get("/model").json()
    assert card["name"] == "noise.lmfcn"
    assert card["classes"] == ["rough", "smooth"]
    assert (card["channels"], card["pixels"], card["size"], card["coverage"]) == (1, "uint8", None, 0.9)
    assert (card["n_gallery"], card["n_support"]) == (32, len(fitted.gallery.support))
    assert card["limits"] == {"files": 200, "file_bytes": 32_000_000, "request_bytes": 128_000_000, "pixels": 2_500_000}
    gallery = client.get("/gallery").json()
    assert gallery["names"] == fitted.gallery.names
    assert np.allclose(gallery["places"], fitted.gallery.coordinates, atol=1e-4)
    picture = client.get("/gallery/3")
    assert picture.content == fitted.gallery.pictures[3]
    assert picture.headers["content-type"] == "image/jpeg"
    assert client.get("/health").json() == {"status": "ok"}


def test_what_is_not_there_is_refused_in_one_sentence(client):
    for path, status, reason in (
        ("/gallery/32", 404, "There is no training image 32; the numbers go from 0 to 31."),
        ("/gallery/-1", 404, "There is no training image -1; the numbers go from 0 to 31."),
        ("/gallery/x", 422, "The parameter 'image' is wrong: Input should be a valid integer"),
        ("/nothing", 404, "Not Found."),
        ("/docs", 404, "Not Found."),
        ("/static/../app.py", 404, "Not Found."),
        ("/predict", 405, "Method Not Allowed."),
    ):
        response = client.get(path)
        assert response.status_code == status
        assert response.json()["detail"].startswith(reason), response.text


def test_without_a_gallery_reasons_have_no_pictures_and_no_place(fitted):
    with running(make_app(fitted.model)) as address, httpx.Client(base_url=address, timeout=60) as client:
        assert client.get("/model").json()["n_gallery"] is None
        for path in ("/gallery", "/gallery/0"):
            response = client.get(path)
            assert (response.status_code, response.json()["detail"]) == (
                404,
                "The server has no gallery of training images.",
            )
        (answer,) = client.post("/predict?reasons=1", files=as_files(fitted, [0])).json()["answers"]
    reasons = answer["reasons"]
    assert reasons["place"] is None
    assert reasons["neighbours"] == []
    assert reasons["in_favour"][0]["picture"] is None
    assert reasons["in_favour"][0]["label"] == answer["label"]


def test_the_gallery_of_another_model_is_refused(fitted):
    from dataclasses import replace

    with pytest.raises(ValueError, match="The gallery belongs to another model"):
        make_app(fitted.model, replace(fitted.gallery, model="0" * 32))


def test_a_token_is_asked_for_where_there_is_something_to_know(fitted):
    app = make_app(fitted.model, fitted.gallery, token="open sesame")
    with running(app) as address, httpx.Client(base_url=address, timeout=60) as client:
        for method, path in (("GET", "/model"), ("GET", "/gallery"), ("GET", "/gallery/0"), ("POST", "/predict")):
            for header in (None, "Bearer wrong", "open sesame", "Basic open sesame", "Bearer öpen"):
                headers = {} if header is None else {"Authorization": header.encode()}
                response = client.request(method, path, headers=headers)
                assert response.status_code == 401, (path, header)
                assert response.headers["www-authenticate"] == "Bearer"
                assert "The token is missing or wrong" in response.json()["detail"]
        right = {"Authorization": "Bearer open sesame"}
        assert client.get("/model", headers=right).status_code == 200
        assert client.post("/predict", headers=right, files=as_files(fitted, [0])).status_code == 200
        assert client.get("/health").status_code == client.get("/").status_code == 200
        document = client.get("/openapi.json").json()
    assert document["components"]["securitySchemes"]["HTTPBearer"]["scheme"] == "bearer"
    assert "401" in document["paths"]["/predict"]["post"]["responses"]


def test_only_one_thread_at_a_time_computes_on_mps():
    limits = Limits(workers=4)
    assert limits.on(torch.device("mps")).workers == 1
    assert limits.on(torch.device("cpu")) == limits.on(torch.device("cuda")) == limits


def test_a_model_with_a_trunk():
    model, (X, y) = trunk_classifier().model_, trunk_images()
    files = [("files", (f"{i}.png", content(X[i]), "image/png")) for i in (0, 15)]
    small = ("files", ("small.png", content(X[0][:31]), "image/png"))
    with (
        running(make_app(model, Gallery.of(trunk_classifier(), X, y))) as address,
        httpx.Client(base_url=address) as own,
    ):
        answers = own.post("/predict", params={"reasons": True}, files=files).json()["answers"]
        refused = own.post("/predict", files=[*files, small])
    for answer, chances in zip(answers, model.predict_proba(X[[0, 15]]), strict=True):
        by_class = dict(zip(model.classes.tolist(), chances.tolist(), strict=True))
        assert answer["probabilities"] == pytest.approx(by_class, abs=1e-6)
    assert answers[1]["reasons"]["neighbours"][0]["image"] == 15
    assert refused.status_code == 422
    assert refused.json()["detail"] == "small.png: Images must have at least 32x32 pixels, got 31x44."
