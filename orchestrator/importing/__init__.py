"""Import a published `config_*.sh`: a system, and a round if the catalogue lacks it."""
