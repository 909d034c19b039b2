"""The studies, benchmarks and published tables of vsehub, as commands: `python -m experiments --help`."""
