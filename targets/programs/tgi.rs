//! Serves TGI's `BlockAllocator`, with its radix trie, as its queue drives it.
//!
//! An admission takes slots for the prompt and for all that will be generated. A request that ends,
//! or is given up before its prompt was computed, drops its allocation: that gives the blocks back,
//! and puts those of the prompt into the trie. A prompt that is cached to its end computes its last
//! token again, in place.

include!(env!("POOLPROOF_ENGINE_MODULES"));

use block_allocator::{BlockAllocation, BlockAllocator};
use poolproof::{Admission, ExtraKey, Manager};
use std::collections::HashMap;
use std::process::ExitCode;
use std::sync::Arc;

/// `max_new_tokens` of every request; the last one that is sampled needs no slot.
const MAX_NEW_TOKENS: u32 = 9;

struct Request {
    allocation: BlockAllocation,
    table: Vec<usize>,
    num_slots: usize,
    num_tokens: usize,
}

struct Tgi {
    allocator: BlockAllocator,
    requests: HashMap<i64, Request>,
    /// Adapters and images are served without the trie, and salts there are none: other tokens.
    names: HashMap<(i64, String), u32>,
}

impl Tgi {
    fn new(num_blocks: usize, block_size: usize, caching: bool) -> Self {
        let size = |number| u32::try_from(number).expect("fits");
        let (num_blocks, block_size) = (size(num_blocks), size(block_size));
        Tgi {
            allocator: BlockAllocator::new(num_blocks * block_size, block_size, caching, None),
            requests: HashMap::new(),
            names: HashMap::new(),
        }
    }

    fn named(&mut self, tokens: &[i64], extra_keys: &[ExtraKey]) -> Vec<u32> {
        let mut named = Vec::with_capacity(tokens.len());
        for (position, token) in tokens.iter().enumerate() {
            let keys: Vec<String> = extra_keys
                .iter()
                .filter(|key| key.first <= position && key.end.is_none_or(|end| position < end))
                .map(|key| match key.end {
                    None => format!("{} {}", key.kind, key.value),
                    Some(_) => format!("{} {} {}", key.kind, key.value, position - key.first),
                })
                .collect();
            named.push(if keys.is_empty() {
                u32::try_from(*token).expect("a token")
            } else {
                let next = (1 << 31) + u32::try_from(self.names.len()).expect("fits");
                *self.names.entry((*token, keys.join(","))).or_insert(next)
            });
        }
        named
    }
}

impl Manager for Tgi {
    const NAME: &'static str = "text-generation-inference BlockAllocator";
    const VERSION: &'static str = env!("POOLPROOF_ENGINE_VERSION");
    const PROFILE: &'static str = env!("POOLPROOF_ENGINE_PROFILE");
    const VERBS: &'static [&'static str] = &["admit", "append", "step", "finish", "abort"];
    const OBSERVERS: &'static [&'static str] = &[];

    fn admit(&mut self, seq_id: i64, tokens: &[i64], extra_keys: &[ExtraKey]) -> Admission {
        let input_ids = self.named(tokens, extra_keys);
        let input_length = u32::try_from(tokens.len()).expect("fits");
        let num_slots = input_length + MAX_NEW_TOKENS - 1;
        let allocator = self.allocator.clone();
        let asked = allocator.allocate(num_slots, Some(Arc::new(input_ids)));
        let Some(allocation) = tokio::block_on(asked) else {
            return Admission::Later;
        };
        let cached = allocation.prefix_len.min(input_length - 1) as usize;
        let table = allocation
            .blocks
            .iter()
            .map(|block| *block as usize)
            .collect();
        let (num_slots, num_tokens) = (num_slots as usize, tokens.len());
        self.requests.insert(
            seq_id,
            Request {
                allocation,
                table,
                num_slots,
                num_tokens,
            },
        );
        Admission::Cached(cached)
    }

    fn append(&mut self, seq_id: i64, tokens: &[i64]) -> bool {
        let request = self.requests.get_mut(&seq_id).expect("admitted");
        let has_slots = request.num_tokens + tokens.len() <= request.num_slots;
        request.num_tokens += if has_slots { tokens.len() } else { 0 };
        has_slots
    }

    fn step(&mut self, _batch: &[(i64, usize)]) {}

    fn finish(&mut self, seq_id: i64) {
        if let Some(request) = self.requests.remove(&seq_id) {
            drop(request.allocation);
            tokio::run_tasks();
        }
    }

    fn sequences(&self) -> Vec<i64> {
        self.requests.keys().copied().collect()
    }

    fn block_table(&self, seq_id: i64) -> &[usize] {
        self.requests
            .get(&seq_id)
            .map_or(&[], |request| &request.table)
    }

    fn num_free(&self) -> usize {
        unreachable!("the allocator does not tell")
    }
}

fn main() -> ExitCode {
    match poolproof::serve_manager(Tgi::new) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}
