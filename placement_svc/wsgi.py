"""The WSGI application, for ``gunicorn placement_svc.wsgi:app``."""

from placement_svc import config, logs
from placement_svc.app import create_app

settings = config.from_environ()
logs.configure(settings)
app = create_app(settings)
