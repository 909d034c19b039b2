"""The command line: one thin function a command, the only place that knows Hydra."""
