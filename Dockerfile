# The page in a container, for your own server (docs/deploy.md). A Space does not use this file.
FROM python:3.12-slim-bookworm

# Index of torch: by default its CPU build, which is a few gigabytes smaller. Empty: the Python package index, for NVIDIA GPUs.
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu

# USER is a number below, so that a cluster can check that it is not root. /cache is a volume: models outlive the container.
RUN useradd --uid 1000 --create-home specviz \
    && install --directory --owner=specviz /cache

WORKDIR /app
COPY requirements.txt ./
RUN pip install --no-cache-dir ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} "$(grep '^torch' requirements.txt)" \
    && pip install --no-cache-dir --requirement requirements.txt

COPY app.py LICENSE NOTICE ./
COPY assets ./assets
COPY specviz ./specviz

ENV HOST=0.0.0.0 \
    PORT=7860 \
    XDG_CACHE_HOME=/cache \
    HF_HOME=/cache/huggingface \
    PYTHONUNBUFFERED=1
USER 1000
VOLUME /cache
EXPOSE 7860
# As process 1 of a container, Python ignores SIGTERM but not SIGINT.
STOPSIGNAL SIGINT
HEALTHCHECK --interval=30s --timeout=5s --start-period=2m \
    CMD ["python", "-c", "import os, urllib.request as web; web.urlopen('http://127.0.0.1:' + os.environ['PORT'] + '/healthz', timeout=4)"]
CMD ["python", "app.py"]
