"""The demo: a cloud in a temporary database, some requests for it, and the service to try others.

Read the modules in this order: `cloud` and `racks` describe the data, `service` starts the service, `output`
prints, and `run` does all of this.
"""
