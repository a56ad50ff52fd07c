//! Serves mistral.rs's `KVCacheManager` over its `BlockPool`, as its paged scheduler drives it.
//!
//! A prompt is looked up by the hashes of its full blocks and gets slots for all of itself; each
//! step publishes the blocks that it filled; an end publishes once more, then gives back.

include!(env!("POOLPROOF_ENGINE_MODULES"));

use block_hash::{
    compute_block_hashes, compute_new_block_hashes, BlockHash, ExtraHashKey,
    MultimodalAttentionPolicy, MultimodalKind, MultimodalSpan,
};
use kv_cache_manager::KVCacheManager;
use poolproof::{Admission, ExtraKey, Manager};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::process::ExitCode;

/// What the engine's crate has at its root.
pub const _PAD_SLOT_ID: i64 = -1;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AdapterGenerationId(usize);

#[derive(Default)]
struct Sequence {
    request_id: usize,
    tokens: Vec<u32>,
    images: Vec<MultimodalSpan>,
    keys: Vec<ExtraHashKey>,
    hashes: Vec<BlockHash>,
    num_computed: usize,
}

struct MistralRs {
    manager: KVCacheManager,
    sequences: HashMap<i64, Sequence>,
    adapters: HashMap<String, usize>,
    num_admitted: usize,
}

impl MistralRs {
    fn new(num_blocks: usize, block_size: usize, caching: bool) -> Self {
        MistralRs {
            manager: KVCacheManager::new(num_blocks, block_size, caching, vec![0]),
            sequences: HashMap::new(),
            adapters: HashMap::new(),
            num_admitted: 0,
        }
    }

    fn keys(&mut self, extra_keys: &[ExtraKey]) -> (Vec<ExtraHashKey>, Vec<MultimodalSpan>) {
        let (mut base, mut images) = (Vec::new(), Vec::new());
        for key in extra_keys {
            match (key.kind.as_str(), key.end) {
                ("lora", _) => {
                    let next = self.adapters.len();
                    let number = *self.adapters.entry(key.value.clone()).or_insert(next);
                    base.push(ExtraHashKey::AdapterGeneration(AdapterGenerationId(number)));
                }
                (_, Some(end)) => images.push(image(images.len(), key, end)),
                _ => base.push(ExtraHashKey::CacheSalt(key.value.clone())),
            }
        }
        (base, images)
    }
}

fn image(number: usize, key: &ExtraKey, end: usize) -> MultimodalSpan {
    let mut hasher = DefaultHasher::new();
    key.value.hash(&mut hasher);
    MultimodalSpan {
        kind: MultimodalKind::Image,
        item_range: number..number + 1,
        hashes: vec![hasher.finish()],
        offset: key.first,
        length: end - key.first,
        attention_policy: MultimodalAttentionPolicy::Causal,
        splittable: true,
    }
}

impl Sequence {
    fn hash_new_blocks(&mut self, block_size: usize) {
        let new = compute_new_block_hashes(
            &self.tokens,
            block_size,
            &self.hashes,
            &self.images,
            &self.keys,
        );
        self.hashes.extend(new);
    }
}

impl Manager for MistralRs {
    const NAME: &'static str = "mistral.rs KVCacheManager";
    const VERSION: &'static str = env!("POOLPROOF_ENGINE_VERSION");
    const PROFILE: &'static str = env!("POOLPROOF_ENGINE_PROFILE");
    const OBSERVERS: &'static [&'static str] = &["num_free", "ref_count", "is_cached"];

    fn admit(&mut self, seq_id: i64, tokens: &[i64], extra_keys: &[ExtraKey]) -> Admission {
        let tokens: Vec<u32> = tokens.iter().map(|token| *token as u32).collect();
        let (keys, images) = self.keys(extra_keys);
        let hashes = compute_block_hashes(&tokens, self.manager.block_size(), &images, &keys);
        let found = self.manager.get_computed_blocks(&hashes, tokens.len());
        self.num_admitted += 1;
        let request_id = self.num_admitted;
        if self
            .manager
            .allocate_slots(request_id, tokens.len(), &found.block_ids)
            .is_none()
        {
            return Admission::Later;
        }
        let num_computed = found.num_computed_tokens;
        let sequence = Sequence {
            request_id,
            tokens,
            images,
            keys,
            hashes,
            num_computed,
        };
        self.sequences.insert(seq_id, sequence);
        Admission::Cached(num_computed)
    }

    fn append(&mut self, seq_id: i64, tokens: &[i64]) -> bool {
        let sequence = self.sequences.get_mut(&seq_id).expect("admitted");
        let num_tokens = sequence.tokens.len() + tokens.len();
        let has_slots = self
            .manager
            .allocate_slots(sequence.request_id, num_tokens, &[])
            .is_some();
        if has_slots {
            sequence
                .tokens
                .extend(tokens.iter().map(|token| *token as u32));
        }
        has_slots
    }

    fn step(&mut self, batch: &[(i64, usize)]) {
        for (seq_id, count) in batch {
            let sequence = self.sequences.get_mut(seq_id).expect("admitted");
            sequence.num_computed += count;
            sequence.hash_new_blocks(self.manager.block_size());
            let (hashes, num_computed) = (&sequence.hashes, sequence.num_computed);
            self.manager
                .cache_blocks(sequence.request_id, hashes, num_computed);
        }
    }

    fn finish(&mut self, seq_id: i64) {
        if let Some(mut sequence) = self.sequences.remove(&seq_id) {
            sequence.hash_new_blocks(self.manager.block_size());
            let (hashes, num_computed) = (&sequence.hashes, sequence.num_computed);
            self.manager
                .cache_blocks(sequence.request_id, hashes, num_computed);
            self.manager.free(sequence.request_id);
        }
    }

    fn sequences(&self) -> Vec<i64> {
        self.sequences.keys().copied().collect()
    }

    fn block_table(&self, seq_id: i64) -> &[usize] {
        let sequence = self.sequences.get(&seq_id);
        sequence
            .and_then(|found| self.manager.get_block_ids(found.request_id))
            .unwrap_or(&[])
    }

    fn num_free(&self) -> usize {
        self.manager.num_free_blocks()
    }

    fn ref_count(&self, block_id: usize) -> usize {
        self.manager.block_pool().block_ref_cnt(block_id) as usize
    }

    fn is_cached(&self, block_id: usize) -> bool {
        self.manager.block_pool().block_hash(block_id).is_some()
    }
}

fn main() -> ExitCode {
    match poolproof::serve_manager(MistralRs::new) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}
