"""The words that everybody speaks: commands, target protocols, observations, profiles, traces."""
