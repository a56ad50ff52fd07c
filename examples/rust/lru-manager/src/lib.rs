//! A manager of sequences of tokens over blocks, with a prefix cache.
//!
//! Free blocks stand in a queue in the order of their last use. A full block is named by a number:
//! the one that its tokens have behind the name of the block before, so that no two contents share a
//! name. Knows nothing of Poolproof but its trait.

use poolproof::{Admission, ExtraKey, Manager};
use std::collections::{BTreeMap, HashMap, VecDeque};

/// What a block holds: the name of the block before, its tokens, and what else its KV depends on.
type Content = (
    Option<usize>,
    Vec<i64>,
    Vec<(String, String, i64, Option<i64>)>,
);

struct Sequence {
    tokens: Vec<i64>,
    extra_keys: Vec<ExtraKey>,
    table: Vec<usize>,
    computed: usize,
    /// The names of its full blocks.
    names: Vec<usize>,
}

pub struct LruManager {
    num_blocks: usize,
    block_size: usize,
    caching: bool,
    /// The planted bug: a block that is taken for something else keeps its name, so that the next
    /// request with the old content is sent there.
    keeps_old_names: bool,
    free: VecDeque<usize>,
    references: Vec<usize>,
    sequences: BTreeMap<i64, Sequence>,
    names: HashMap<Content, usize>,
    block_of: HashMap<usize, usize>,
    name_of: Vec<Option<usize>>,
}

impl LruManager {
    #[must_use]
    pub fn new(num_blocks: usize, block_size: usize, caching: bool, keeps_old_names: bool) -> Self {
        Self {
            num_blocks,
            block_size,
            caching,
            keeps_old_names,
            free: (0..num_blocks).collect(),
            references: vec![0; num_blocks],
            sequences: BTreeMap::new(),
            names: HashMap::new(),
            block_of: HashMap::new(),
            name_of: vec![None; num_blocks],
        }
    }

    /// The name of block number `entry` of these tokens, which is full.
    fn name(&mut self, sequence: &Sequence, entry: usize) -> usize {
        let first = entry * self.block_size;
        let end = first + self.block_size;
        let place = |position: usize| {
            i64::try_from(position).unwrap_or(0) - i64::try_from(first).unwrap_or(0)
        };
        let keys = sequence
            .extra_keys
            .iter()
            .filter(|key| key.first < end && key.end.map_or(true, |key_end| key_end > first));
        let keys = keys.map(|key| {
            let (kind, value) = (key.kind.clone(), key.value.clone());
            (kind, value, place(key.first), key.end.map(place))
        });
        let before = entry.checked_sub(1).map(|before| sequence.names[before]);
        let content = (before, sequence.tokens[first..end].to_vec(), keys.collect());
        let next = self.names.len();
        *self.names.entry(content).or_insert(next)
    }

    /// The cached blocks at the head of a sequence. The last token is always computed, or there
    /// would be nothing to sample from.
    fn find_hits(&mut self, sequence: &mut Sequence) {
        if !self.caching {
            return;
        }
        for entry in 0..(sequence.tokens.len() - 1) / self.block_size {
            let name = self.name(sequence, entry);
            let Some(block) = self.block_of.get(&name) else {
                return;
            };
            sequence.table.push(*block);
            sequence.names.push(name);
        }
    }

    /// Blocks from the head; what was cached in them is gone.
    fn take(&mut self, count: usize) -> Vec<usize> {
        let taken: Vec<usize> = self.free.drain(..count).collect();
        for block in &taken {
            self.references[*block] = 1;
            if self.keeps_old_names {
                continue;
            }
            if let Some(name) = self.name_of[*block].take() {
                self.block_of.remove(&name);
            }
        }
        taken
    }

    /// Full blocks whose tokens are computed can be found from now on.
    fn publish(&mut self, sequence: &mut Sequence) {
        for entry in sequence.names.len()..sequence.computed / self.block_size {
            let name = self.name(sequence, entry);
            sequence.names.push(name);
            let block = sequence.table[entry];
            if self.caching && !self.block_of.contains_key(&name) {
                self.block_of.insert(name, block);
                self.name_of[block] = Some(name);
            }
        }
    }
}

impl Manager for LruManager {
    const NAME: &'static str = "lru-manager-rust";
    const VERSION: &'static str = "1";
    const PROFILE: &'static str =
        r#"{"eviction":"lru","duplicates":"first","reserves":"sequence"}"#;

    fn admit(&mut self, seq_id: i64, tokens: &[i64], extra_keys: &[ExtraKey]) -> Admission {
        let mut sequence = Sequence {
            tokens: tokens.to_vec(),
            extra_keys: extra_keys.to_vec(),
            table: Vec::new(),
            computed: 0,
            names: Vec::new(),
        };
        self.find_hits(&mut sequence);
        let hits = sequence.table.len();
        let entries = tokens.len().div_ceil(self.block_size);
        let held = |block: &&usize| self.references[**block] == 0;
        // A hit that nobody holds leaves the free blocks, too.
        let waiting = sequence.table.iter().filter(held).count();
        if entries - hits + waiting > self.free.len() {
            return if entries > self.num_blocks {
                Admission::Never
            } else {
                Admission::Later
            };
        }
        for block in &sequence.table {
            self.references[*block] += 1;
        }
        let references = &self.references;
        self.free.retain(|block| references[*block] == 0);
        sequence.table.extend(self.take(entries - hits));
        sequence.computed = hits * self.block_size;
        self.sequences.insert(seq_id, sequence);
        Admission::Cached(hits * self.block_size)
    }

    fn append(&mut self, seq_id: i64, tokens: &[i64]) -> bool {
        let sequence = &self.sequences[&seq_id];
        let all = sequence.tokens.len() + tokens.len();
        let missing = all.div_ceil(self.block_size) - sequence.table.len();
        if missing > self.free.len() {
            return false;
        }
        let taken = self.take(missing);
        if let Some(sequence) = self.sequences.get_mut(&seq_id) {
            sequence.tokens.extend(tokens);
            sequence.table.extend(taken);
        }
        true
    }

    fn step(&mut self, batch: &[(i64, usize)]) {
        for (seq_id, count) in batch {
            if let Some(mut sequence) = self.sequences.remove(seq_id) {
                sequence.computed += count;
                self.publish(&mut sequence);
                self.sequences.insert(*seq_id, sequence);
            }
        }
    }

    fn finish(&mut self, seq_id: i64) {
        let Some(sequence) = self.sequences.remove(&seq_id) else {
            return;
        };
        // The tail of a prefix is evicted before its head.
        for block in sequence.table.into_iter().rev() {
            self.references[block] -= 1;
            if self.references[block] == 0 {
                self.free.push_back(block);
            }
        }
    }

    fn sequences(&self) -> Vec<i64> {
        self.sequences.keys().copied().collect()
    }

    fn block_table(&self, seq_id: i64) -> &[usize] {
        &self.sequences[&seq_id].table
    }

    fn num_free(&self) -> usize {
        self.free.len()
    }

    fn free_order(&self) -> Vec<usize> {
        self.free.iter().copied().collect()
    }

    fn ref_count(&self, block_id: usize) -> usize {
        self.references[block_id]
    }

    fn is_cached(&self, block_id: usize) -> bool {
        self.name_of[block_id].is_some()
    }
}
