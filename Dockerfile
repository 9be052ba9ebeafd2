# The page in a container, for a server of one's own. A Space does not use it: there README.md says "sdk: gradio".
# docs/deploy.md says how it is built and run, and what a GPU takes.
FROM python:3.12-slim-bookworm

# Where torch comes from: its CPU build by default, a few gigabytes smaller. Empty is the Python package index, whose
# build is for NVIDIA GPUs.
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu

# A number, so that a cluster can tell that it is not root. The cache is a volume: models outlive the container.
RUN useradd --uid 1000 --create-home specviz \
    && install --directory --owner=specviz /cache

WORKDIR /app
COPY requirements.txt ./
RUN pip install --no-cache-dir ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} "$(grep '^torch' requirements.txt)" \
    && pip install --no-cache-dir --requirement requirements.txt

COPY app.py ./
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
# As the first process of a container Python passes over SIGTERM, but not over this.
STOPSIGNAL SIGINT
HEALTHCHECK --interval=30s --timeout=5s --start-period=2m \
    CMD ["python", "-c", "import os, urllib.request as web; web.urlopen('http://127.0.0.1:' + os.environ['PORT'] + '/healthz', timeout=4)"]
CMD ["python", "app.py"]
