FROM python:3.13-slim AS build
WORKDIR /src
RUN python -m venv /opt/placement-svc
COPY pyproject.toml README.md alembic.ini ./
COPY migrations migrations
COPY placement_svc placement_svc
RUN /opt/placement-svc/bin/pip install --no-cache-dir '.[keystone]'

FROM python:3.13-slim
RUN useradd --create-home placement
COPY --from=build /opt/placement-svc /opt/placement-svc
ENV PATH=/opt/placement-svc/bin:$PATH PYTHONUNBUFFERED=1
USER placement
WORKDIR /home/placement
EXPOSE 8778
# The slim image has no curl.
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s \
    CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8778/healthz', timeout=4)"]
CMD ["placement-svc", "serve", "--host", "0.0.0.0", "--port", "8778"]
