"""Running the service: gunicorn, its worker and the log."""
