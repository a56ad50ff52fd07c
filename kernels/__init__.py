"""Paged attention: kernels, dense oracle, relations, read sets, faulty kernels, other people's.

Everything here needs torch, and the kernels need triton; nothing else of Poolproof does. Nothing is
imported by this module, so that the command line can look for both before it uses them.
"""
