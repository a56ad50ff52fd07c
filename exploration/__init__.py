"""Exhaustive exploration, inductive proof and symbolic checks."""
