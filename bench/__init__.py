"""The benchmark: `python -m bench` compares this service with OpenStack Placement."""
