//! Serves a KV-cache block allocator to `poolproof certify 'cmd:./program'`.
//!
//! Implement [`Allocator`] and call [`serve`] from `main`, or [`Manager`] and [`serve_manager`], or
//! [`Engine`] and [`serve_engine`]: commands are read from standard input and answered on standard
//! output, one JSON object a line (docs/protocol.md). What the allocator itself wants to say belongs
//! on standard error. A panic is told as an error of the command that brought it about.
//!
//! Not covered: queues without a pool, events, and allocators whose `acquire` looks up and pins.

mod engine;
mod json;
mod manager;
mod messages;
mod server;

pub use engine::{serve_engine, Engine, Output, Part, Plan};
pub use manager::{serve_manager, Admission, ExtraKey, Manager};
pub use server::serve;

/// A block id as it comes over the line: it may be one that does not exist.
pub type BlockId = i64;

/// Why a command was refused; then nothing may have changed.
pub type Refusal = &'static str;

/// The blocks before and after a block in the free queue; `None` at its ends.
pub type Neighbours = (Option<usize>, Option<usize>);

/// What a block is cached under.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockHash {
    length: u8,
    bytes: [u8; BlockHash::MOST_BYTES],
}

impl BlockHash {
    /// Hashes are at most this long.
    pub const MOST_BYTES: usize = 64;

    pub(crate) fn from_hexadecimal(text: &str) -> Option<Self> {
        let length = text.len() / 2;
        if text.len() % 2 != 0 || length > Self::MOST_BYTES || !text.is_ascii() {
            return None;
        }
        let mut bytes = [0; Self::MOST_BYTES];
        for (place, byte) in bytes.iter_mut().take(length).enumerate() {
            *byte = u8::from_str_radix(&text[2 * place..2 * place + 2], 16).ok()?;
        }
        Some(Self {
            length: u8::try_from(length).ok()?,
            bytes,
        })
    }

    /// The bytes of the hash.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

/// A block pool; docs/contract.md says what each operation means.
pub trait Allocator {
    /// How the program introduces itself.
    const NAME: &'static str;
    const VERSION: &'static str;
    /// The rows of the profile, as a JSON object.
    const PROFILE: &'static str;
    /// What of the optional part below is there to be seen.
    const OBSERVERS: &'static [&'static str] =
        &["free_order", "ref_count", "block_hash", "free_neighbours"];

    /// # Errors
    /// More blocks than are free, or a negative number.
    fn allocate(&mut self, count: i64) -> Result<Vec<usize>, Refusal>;
    /// # Errors
    /// Misuse, where the profile says `raises`; the same holds for the other verbs.
    fn touch(&mut self, block_ids: &[BlockId]) -> Result<(), Refusal>;
    /// # Errors
    /// Misuse.
    fn free(&mut self, block_ids: &[BlockId]) -> Result<(), Refusal>;
    /// # Errors
    /// Misuse.
    fn cache(&mut self, block_ids: &[BlockId], hashes: &[BlockHash]) -> Result<(), Refusal>;
    fn lookup(&self, hash: &BlockHash) -> Option<usize>;
    /// # Errors
    /// Misuse.
    fn evict(&mut self, block_ids: &[BlockId]) -> Result<(), Refusal>;
    fn reset(&mut self) -> bool;
    fn num_free(&self) -> usize;

    /// The free blocks, head first; a broken list must not be followed for ever.
    fn free_order(&self) -> Vec<usize> {
        Vec::new()
    }
    fn ref_count(&self, _block_id: usize) -> i64 {
        0
    }
    fn block_hash(&self, _block_id: usize) -> Option<BlockHash> {
        None
    }
    /// `None` for a block outside the queue.
    fn free_neighbours(&self, _block_id: usize) -> Option<Neighbours> {
        None
    }
}
