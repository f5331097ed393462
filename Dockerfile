# To pin the base image by its digest: docker build --build-arg PYTHON_IMAGE=python:TAG@sha256:DIGEST .
ARG PYTHON_IMAGE=python:3.13.12-slim-trixie
# binary: the wheel of psycopg2, which contains copies of libpq and OpenSSL.
# source: psycopg2 is compiled, and uses the libpq and OpenSSL of Debian, which Debian's updates fix.
ARG PSYCOPG2=binary

FROM ${PYTHON_IMAGE} AS build-binary

FROM build-binary AS build-source
RUN apt-get update && \
    apt-get install --yes --no-install-recommends gcc libc6-dev libpq-dev && \
    rm -rf /var/lib/apt/lists/*
ENV PIP_NO_BINARY=psycopg2-binary

FROM build-${PSYCOPG2} AS build
WORKDIR /src
COPY deploy/image deploy/image
RUN pip install --no-cache-dir --require-hashes -r deploy/image/build-requirements.txt && \
    pip wheel --no-cache-dir --require-hashes --no-deps --no-build-isolation --wheel-dir /wheels \
        -r deploy/image/requirements.txt
COPY pyproject.toml README.md LICENSE alembic.ini ./
COPY migrations migrations
COPY placement_svc placement_svc
# Without the embedded PostgreSQL, which requirements.txt omits: it is large, and the container has no persistent
# directory for its data.
RUN pip wheel --no-deps --no-build-isolation --wheel-dir /wheels . && \
    python -m venv --without-pip /opt/placement-svc && \
    pip --python /opt/placement-svc install --no-cache-dir --no-deps --no-index /wheels/*.whl

FROM ${PYTHON_IMAGE} AS runtime-binary

FROM runtime-binary AS runtime-source
RUN apt-get update && \
    apt-get install --yes --no-install-recommends libpq5 && \
    rm -rf /var/lib/apt/lists/*

FROM runtime-${PSYCOPG2}
COPY --from=build /opt/placement-svc /opt/placement-svc
# Docker gives a new volume that is mounted here this owner.
RUN install --directory --owner=10001 --group=10001 --mode=0700 /run/placement
# All files that the service writes (gunicorn heartbeats, metrics, large request bodies) go to shared memory, so
# the root file system may be read-only.
ENV PATH=/opt/placement-svc/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 TMPDIR=/dev/shm
# A numeric id: Kubernetes cannot verify runAsNonRoot for a user name.
USER 10001:10001
WORKDIR /
EXPOSE 8778
# Python, because the slim image has no curl.
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s \
    CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8778/healthz', timeout=4)"]
CMD ["placement-svc", "serve", "--host", "0.0.0.0", "--port", "8778"]
