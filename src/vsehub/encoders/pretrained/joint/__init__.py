"""Image and text encoders of one model, trained together: CLIP, SigLIP and their kind, by open_clip or transformers."""
