import asyncio
from urllib.parse import urlsplit

import pytest

from lmfcn.serve.guard import HEADERS, Guard


@pytest.mark.parametrize("path", ["/", "/static/page.js", "/model", "/nothing", "/predict"])
def test_every_response_has_the_headers_that_protect(client, path):
    response = client.get(path)
    for name, value in HEADERS.items():
        assert response.headers[name] == value
    policy = response.headers["content-security-policy"]
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy
    assert response.headers["referrer-policy"] == "no-referrer"
    assert "access-control-allow-origin" not in response.headers


def test_only_names_of_this_machine_are_accepted(client, address):
    port = urlsplit(address).port
    for host in ("localhost", f"LOCALHOST:{port}", f"127.0.0.1:{port}", f"[::1]:{port}"):
        assert client.get("/health", headers={"Host": host}).status_code == 200
    for host in ("evil.example", f"evil.example:{port}", "127.0.0.1.evil.example", "localhost:x", "localhost@evil"):
        response = client.get("/health", headers={"Host": host})
        assert response.status_code == 400
        assert response.json()["detail"].startswith("This server does not accept the host name")


def test_pages_of_other_sites_cannot_make_a_browser_ask(client):
    other = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}
    form = {**other, "Sec-Fetch-Mode": "navigate"}
    assert client.post("/predict", headers=form).status_code == 403
    response = client.post("/predict", headers=other)
    assert (response.status_code, response.json()["detail"]) == (
        403,
        "Requests from pages of other sites are refused.",
    )
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    assert client.get("/", headers=link).status_code == 200
    same = {"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors"}
    assert client.get("/health", headers=same).status_code == 200


def test_what_is_no_request_passes():
    seen = []

    async def app(scope, _receive, _send):
        seen.append(scope["type"])

    asyncio.run(Guard(app, {"localhost"})({"type": "lifespan"}, None, None))
    assert seen == ["lifespan"]
