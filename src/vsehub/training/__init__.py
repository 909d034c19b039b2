"""Training under Lightning: module, data module, callbacks, loggers and the record of a run."""
