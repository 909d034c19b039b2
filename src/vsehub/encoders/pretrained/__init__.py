"""Encoders on networks trained elsewhere: torchvision, timm, transformers."""
