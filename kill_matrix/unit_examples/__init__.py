"""A few dozen hand-written examples, such as an engine's own unit tests hold.

They are here to be compared with: each says something true and sensible, and together they find
few of the planted bugs.
"""
