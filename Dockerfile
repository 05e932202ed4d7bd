# lmfcn serve, on a CPU:
#
#   docker build --tag lmfcn .
#   docker run --rm --read-only --tmpfs /tmp --volume "$PWD/models:/models:ro" --publish 127.0.0.1:8000:8000 \
#       --env LMFCN_TOKEN lmfcn /models/model.lmfcn --host 0.0.0.0
FROM python:3.12-slim AS build
# The public index has a torch with CUDA libraries for Linux (gigabytes); this one is built for CPUs.
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
WORKDIR /source
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY src src
RUN python -m venv /opt/lmfcn \
    && /opt/lmfcn/bin/pip install --no-cache-dir --no-compile --constraint constraints.txt \
        --extra-index-url "$TORCH_INDEX" torch \
    && /opt/lmfcn/bin/pip install --no-cache-dir --no-compile --constraint constraints.txt '.[serve]' \
    # Headers, tests and tools of torch are not needed to predict: 195 MB.
    && rm -r /opt/lmfcn/lib/python3.12/site-packages/torch/include \
        /opt/lmfcn/lib/python3.12/site-packages/torch/test \
        /opt/lmfcn/lib/python3.12/site-packages/torch/bin

FROM python:3.12-slim
LABEL org.opencontainers.image.title="lmfcn serve" org.opencontainers.image.licenses="BSD-3-Clause"
COPY --from=build /opt/lmfcn /opt/lmfcn
ENV PATH=/opt/lmfcn/bin:$PATH HOME=/tmp PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
USER 10001:10001
EXPOSE 8000
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/health', timeout=4)"]
ENTRYPOINT ["lmfcn", "serve"]
CMD ["/models/model.lmfcn", "--host", "0.0.0.0"]
