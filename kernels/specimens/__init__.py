"""Faulty kernels: our own with one line replaced, each a fault that some engine has had."""
