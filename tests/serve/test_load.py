import re
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from serving import as_files, serving_command

CLIENTS, REQUESTS = 8, 500
GROWTH = 60_000_000  # bytes; half a megabyte that stays behind each request would be four times as much


def memory_of(process) -> int:
    status = Path(f"/proc/{process.pid}/status").read_text()
    return 1000 * int(re.search(r"VmRSS:\s+(\d+) kB", status).group(1))


@pytest.mark.thorough
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
def test_many_requests_of_several_clients_leave_nothing_behind(fitted):
    with serving_command(fitted.path) as command:
        ask_many(command, fitted)


def ask_many(command, fitted):
    process, address = command.process, command.address
    files = [as_files(fitted, [i]) for i in range(16)]

    def ask(client_number, n_requests):
        with httpx.Client(base_url=address, timeout=120) as client:
            for i in range(n_requests):
                number = (client_number + i) % 16
                response = client.post("/predict", params={"reasons": i % 20 == 0}, files=files[number])
                assert response.status_code == 200
                assert response.json()["answers"][0]["name"] == f"{number}.png"
        return n_requests

    def all_ask(n_requests):
        with ThreadPoolExecutor(CLIENTS) as pool:
            return sum(pool.map(ask, range(CLIENTS), [n_requests] * CLIENTS))

    all_ask(6)  # threads, buffers and caches come into being
    before = memory_of(process)
    assert all_ask(-(-REQUESTS // CLIENTS)) >= REQUESTS
    assert memory_of(process) - before < GROWTH
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 0
    assert (process.stdout.read(), process.stderr.read()) == ("Stopped.\n", "")
