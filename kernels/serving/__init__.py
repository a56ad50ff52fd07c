"""A small engine over a real allocator: whole requests, their outputs against dense attention."""
