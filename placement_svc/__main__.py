"""Run the command line interface with ``python -m placement_svc``."""

from placement_svc.cli import main

if __name__ == "__main__":
    main(prog_name="placement-svc")
