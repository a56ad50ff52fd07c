"""The shared vocabulary: commands, target protocols, observations, profiles, traces."""
