"""Tests that take a minute or more on two cores: `make test-long` runs them, `make test` leaves them out."""

import os

import pytest

long = pytest.mark.skipif("VSEHUB_TEST_LONG" not in os.environ, reason="minutes on two cores: make test-long")
