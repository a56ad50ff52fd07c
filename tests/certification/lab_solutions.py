"""A solution of the lab, method by method: what stands in place of each NotImplementedError."""

POOL_SET_UP = """
        self.queue = list(range(num_blocks))
        self.counts = [0] * num_blocks
        self.hashes = [None] * num_blocks
"""

POOL = {
    "num_free": """
        return len(self.queue)
""",
    "allocate": """
        if not 0 <= n <= len(self.queue):
            raise ValueError(f"{n} blocks asked for, {len(self.queue)} free")
        taken, self.queue = self.queue[:n], self.queue[n:]
        for block in taken:
            self.counts[block] = 1
            self.hashes[block] = None
        return taken
""",
    "free": """
        if any(self.counts_of(block) < block_ids.count(block) for block in block_ids):
            raise ValueError("freed too often")
        for block in block_ids:
            self.counts[block] -= 1
            if not self.counts[block]:
                self.queue.append(block)

    def counts_of(self, block):
        return self.counts[block] if 0 <= block < self.num_blocks else 0
""",
    "cache": """
        if not self.enable_caching:
            return
        held = all(self.counts_of(block) for block in block_ids)
        if not held or len(set(block_ids)) != len(block_ids) or len(hashes) != len(block_ids):
            raise ValueError("only held blocks are cached, each once")
        for block, block_hash in zip(block_ids, hashes):
            self.hashes[block] = block_hash
""",
    "lookup": """
        return self.hashes.index(block_hash) if block_hash in self.hashes else None
""",
    "touch": """
        if not all(0 <= block < self.num_blocks for block in block_ids):
            raise ValueError("no such block")
        for block in block_ids:
            if not self.counts[block]:
                self.queue.remove(block)
            self.counts[block] += 1
""",
}

MANAGER_SET_UP = """
        self.queue = list(range(num_blocks))
        self.tables = {}
        self.lengths = {}
"""

MANAGER = {
    "admit": """
        needed = -(-len(tokens) // self.block_size)
        if needed > self.num_blocks:
            return "never"
        if needed > len(self.queue):
            return "later"
        self.tables[seq_id], self.queue = self.queue[:needed], self.queue[needed:]
        self.lengths[seq_id] = len(tokens)
        return 0
""",
    "block_table": """
        return self.tables[seq_id]
""",
    "finish": """
        self.queue += self.tables.pop(seq_id, [])[::-1]
""",
    "step": """
        return
""",
    "append": """
        length = self.lengths[seq_id] + len(tokens)
        needed = -(-length // self.block_size) - len(self.tables[seq_id])
        if needed > len(self.queue):
            return "later"
        self.tables[seq_id] += self.queue[:needed]
        self.queue = self.queue[needed:]
        self.lengths[seq_id] = length
        return []
""",
}

ENGINE_SET_UP = """
        self.requests = {}
        self.table, self.computed = list(range(num_blocks)), 0
"""

ENGINE = {
    "submit": """
        self.requests[request_id] = (list(tokens), len(tokens) + max_new_tokens)
""",
    "plan": """
        self.step = next(iter(self.requests), None)  # one after the other
        if self.step is None:
            return {"compute": []}
        left = len(self.requests[self.step][0]) - self.computed
        self.count = min(64, left)
        part = {"request": self.step, "first": self.computed, "count": self.count}
        return {"compute": [{**part, "blocks": [self.table]}]}
""",
    "answer": """
        if self.step is None:
            return []
        known, most = self.requests[self.step]
        self.computed += self.count
        if self.computed < len(known):
            return []
        known += tokens[self.step]
        ended = known[-1] == 0 or len(known) == most
        if ended:
            del self.requests[self.step]
            self.computed = 0
        return [(self.step, tokens[self.step], ended)]
""",
}
