"""I1 to I4 and the derived invariants, each a named predicate over observations."""
