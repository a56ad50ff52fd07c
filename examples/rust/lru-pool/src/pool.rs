//! A block pool: a linked list of free blocks in the order of their last use, and a prefix index.

use poolproof::{Allocator, BlockHash, BlockId, Neighbours, Refusal};
use std::collections::HashMap;

#[derive(Clone, Default)]
struct Block {
    ref_count: i64,
    /// Neighbours in the free queue, `None` outside it; `ring` stands before its head and behind
    /// its tail.
    links: Option<(usize, usize)>,
    hash: Option<BlockHash>,
}

/// The pool. With `drops_all_copies` a hash is forgotten with the first of its carriers that is
/// recycled: the planted bug, which a port of nano-vLLM's index had (nano-vllm#219).
pub struct LruPool {
    blocks: Vec<Block>,
    ring: usize,
    num_free: usize,
    enable_caching: bool,
    drops_all_copies: bool,
    carriers: HashMap<BlockHash, Vec<usize>>,
}

impl LruPool {
    pub fn new(num_blocks: usize, enable_caching: bool, drops_all_copies: bool) -> Self {
        let mut blocks = vec![Block::default(); num_blocks + 1];
        blocks[num_blocks].links = Some((num_blocks, num_blocks));
        let carriers = HashMap::new();
        let ring = num_blocks;
        let mut pool = Self {
            blocks,
            ring,
            num_free: 0,
            enable_caching,
            drops_all_copies,
            carriers,
        };
        for id in 0..num_blocks {
            pool.join_at_tail(id);
        }
        pool
    }

    fn links(&self, id: usize) -> (usize, usize) {
        self.blocks[id]
            .links
            .expect("a block of the free queue has links")
    }

    fn set_before(&mut self, id: usize, before: usize) {
        self.blocks[id].links = Some((before, self.links(id).1));
    }

    fn set_after(&mut self, id: usize, after: usize) {
        self.blocks[id].links = Some((self.links(id).0, after));
    }

    fn join_at_tail(&mut self, id: usize) {
        let last = self.links(self.ring).0;
        self.blocks[id].links = Some((last, self.ring));
        self.set_after(last, id);
        self.set_before(self.ring, id);
        self.num_free += 1;
    }

    fn leave_queue(&mut self, id: usize) {
        let (before, after) = self.links(id);
        self.set_after(before, after);
        self.set_before(after, before);
        self.blocks[id].links = None;
        self.num_free -= 1;
    }

    fn drop_hash(&mut self, id: usize) {
        let Some(hash) = self.blocks[id].hash.take() else {
            return;
        };
        if let Some(carriers) = self.carriers.get_mut(&hash) {
            carriers.retain(|carrier| *carrier != id);
            if carriers.is_empty() || self.drops_all_copies {
                self.carriers.remove(&hash);
            }
        }
    }

    /// The ids as indices, if all of them exist.
    fn existing(&self, block_ids: &[BlockId]) -> Result<Vec<usize>, Refusal> {
        let exists = |id: &BlockId| usize::try_from(*id).ok().filter(|id| *id < self.ring);
        let found: Option<Vec<usize>> = block_ids.iter().map(exists).collect();
        found.ok_or("a block that does not exist")
    }
}

impl Allocator for LruPool {
    const NAME: &'static str = "lru-pool-rust";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    const PROFILE: &'static str =
        r#"{"eviction":"lru","duplicates":"kept","recache":"replace","misuse":"raises"}"#;

    fn allocate(&mut self, count: i64) -> Result<Vec<usize>, Refusal> {
        let count = usize::try_from(count).map_err(|_| "a negative number of blocks")?;
        if count > self.num_free {
            return Err("fewer blocks are free");
        }
        let mut taken = Vec::with_capacity(count);
        for _ in 0..count {
            let id = self.links(self.ring).1;
            self.leave_queue(id);
            self.drop_hash(id);
            self.blocks[id].ref_count = 1;
            taken.push(id);
        }
        Ok(taken)
    }

    fn touch(&mut self, block_ids: &[BlockId]) -> Result<(), Refusal> {
        for id in self.existing(block_ids)? {
            if self.blocks[id].ref_count == 0 {
                self.leave_queue(id);
            }
            self.blocks[id].ref_count += 1;
        }
        Ok(())
    }

    fn free(&mut self, block_ids: &[BlockId]) -> Result<(), Refusal> {
        let ids = self.existing(block_ids)?;
        let too_often = |id: &usize| times(&ids, *id) > self.blocks[*id].ref_count;
        if ids.iter().any(too_often) {
            return Err("more frees than references");
        }
        for id in ids {
            self.blocks[id].ref_count -= 1;
            if self.blocks[id].ref_count == 0 {
                self.join_at_tail(id);
            }
        }
        Ok(())
    }

    fn cache(&mut self, block_ids: &[BlockId], hashes: &[BlockHash]) -> Result<(), Refusal> {
        if !self.enable_caching {
            return Ok(());
        }
        if block_ids.len() != hashes.len() {
            return Err("lists of unequal length");
        }
        let ids = self.existing(block_ids)?;
        if ids.iter().any(|id| times(&ids, *id) > 1) {
            return Err("a block twice");
        }
        if ids.iter().any(|id| self.blocks[*id].ref_count == 0) {
            return Err("a block that nobody holds");
        }
        for (id, hash) in ids.into_iter().zip(hashes) {
            if self.blocks[id].hash != Some(*hash) {
                self.drop_hash(id);
                self.blocks[id].hash = Some(*hash);
                self.carriers.entry(*hash).or_default().push(id);
            }
        }
        Ok(())
    }

    fn lookup(&self, hash: &BlockHash) -> Option<usize> {
        self.carriers
            .get(hash)
            .and_then(|carriers| carriers.first().copied())
    }

    fn evict(&mut self, block_ids: &[BlockId]) -> Result<(), Refusal> {
        if self.enable_caching {
            for id in self.existing(block_ids)? {
                self.drop_hash(id);
            }
        }
        Ok(())
    }

    fn reset(&mut self) -> bool {
        let nobody_holds = self.num_free == self.ring;
        if nobody_holds {
            (0..self.ring).for_each(|id| self.drop_hash(id));
        }
        nobody_holds
    }

    fn num_free(&self) -> usize {
        self.num_free
    }

    fn free_order(&self) -> Vec<usize> {
        let mut order = Vec::new();
        let mut id = self.links(self.ring).1;
        while id != self.ring && order.len() <= self.ring {
            order.push(id);
            let Some((_, after)) = self.blocks[id].links else {
                break;
            };
            id = after;
        }
        order
    }

    fn ref_count(&self, id: usize) -> i64 {
        self.blocks[id].ref_count
    }

    fn block_hash(&self, id: usize) -> Option<BlockHash> {
        self.blocks[id].hash
    }

    fn free_neighbours(&self, id: usize) -> Option<Neighbours> {
        let inside = |neighbour: usize| Some(neighbour).filter(|id| *id != self.ring);
        self.blocks[id]
            .links
            .map(|(before, after)| (inside(before), inside(after)))
    }
}

fn times(ids: &[usize], id: usize) -> i64 {
    ids.iter().map(|other| i64::from(*other == id)).sum()
}
