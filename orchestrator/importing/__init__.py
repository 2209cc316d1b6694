"""A published `config_*.sh` as documents: a system, and a round if the catalogue lacks it."""
