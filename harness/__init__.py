"""Applies commands to a target and to the reference, observes both and checks each step."""
