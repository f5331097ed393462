"""How fast the service is, side by side with OpenStack Placement: `python -m bench`."""
