"""Lightning's side of the house: module, data, callbacks and the record of a run."""
