"""Paged attention: kernels, dense oracle, relations, read sets, faulty kernels, other people's.

Everything here needs torch, and the kernels need triton; nothing else in Poolproof does. This
module imports nothing, so that the command line can look for both before it uses them.
"""
