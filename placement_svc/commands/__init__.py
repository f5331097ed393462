"""The commands of `placement-svc`: one module for each command or group of commands."""
