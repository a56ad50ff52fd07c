//! Serves a block pool: version 1 of the protocol, and what is shown after each command.

use crate::json::{list, optional, quoted, Json};
use crate::messages::{
    asks_for_state, enables_caching, integers, number, numbers, serve_runs, size, Run,
};
use crate::{Allocator, BlockHash};
use std::io;

const PROTOCOL: i64 = 1;
const VERBS: &str = r#"["allocate","touch","free","cache","lookup","evict","reset"]"#;

/// Serves allocators that `create(num_blocks, enable_caching)` makes, until the other side is done.
///
/// # Errors
/// Standard input or output that fails, and a line that is not JSON.
pub fn serve<A: Allocator>(create: impl Fn(usize, bool) -> A) -> io::Result<()> {
    serve_runs(introduce::<A>, |message| PoolRun::begin(&create, message))
}

fn introduce<A: Allocator>(message: &Json) -> String {
    // Whoever speaks a later version understands this one, too.
    if number(message, "protocol") < PROTOCOL {
        return format!(
            r#""protocol":{PROTOCOL},"error":"this program speaks protocol {PROTOCOL}""#
        );
    }
    format!(
        r#""protocol":{PROTOCOL},"name":{},"version":{},"level":"pool","verbs":{VERBS},"observers":{},"profile":{}"#,
        quoted(A::NAME),
        quoted(A::VERSION),
        list(A::OBSERVERS.iter().map(|name| quoted(name))),
        A::PROFILE,
    )
}

/// One pool, with what was shown of it last.
struct PoolRun<A: Allocator> {
    pool: A,
    num_blocks: usize,
    shows_state: bool,
    shown: Vec<(&'static str, String)>,
    /// The hashes that commands of this run have named, in that order.
    named: Vec<BlockHash>,
}

impl<A: Allocator> Run for PoolRun<A> {
    fn answer(&mut self, command: &Json) -> Vec<String> {
        let mut parts = Vec::new();
        match self.result(command) {
            Ok(result) => parts.extend(result.map(|value| format!(r#""result":{value}"#))),
            Err(reason) => parts.push(format!(r#""refused":{}"#, quoted(reason))),
        }
        if self.shows_state {
            parts.extend(self.changes());
        }
        parts
    }

    fn shows_state(&self) -> bool {
        self.shows_state
    }

    fn changes(&mut self) -> Vec<String> {
        let blocks = 0..self.num_blocks;
        let sees = |name: &str| A::OBSERVERS.contains(&name);
        let mut parts = vec![("num_free", self.pool.num_free().to_string())];
        if sees("free_order") {
            parts.push(("free_order", numbers(&self.pool.free_order())));
        }
        if sees("ref_count") {
            let counts = blocks.clone().map(|id| self.pool.ref_count(id).to_string());
            parts.push(("ref_counts", list(counts)));
        }
        if sees("block_hash") {
            let hashes = blocks
                .clone()
                .map(|id| hexadecimal(self.pool.block_hash(id)));
            parts.push(("block_hashes", list(hashes)));
        }
        if sees("free_neighbours") {
            parts.push(("neighbours", list(blocks.map(|id| self.neighbours(id)))));
        }
        let lookups = self
            .named
            .iter()
            .map(|hash| optional(self.pool.lookup(hash)));
        parts.push(("lookups", list(lookups)));
        let before = std::mem::take(&mut self.shown);
        let changed = parts.iter().filter(|part| !before.contains(part));
        let written = changed
            .map(|(name, value)| format!(r#""{name}":{value}"#))
            .collect();
        self.shown = parts;
        written
    }
}

impl<A: Allocator> PoolRun<A> {
    fn begin(create: &impl Fn(usize, bool) -> A, message: &Json) -> Self {
        let num_blocks = size(number(message, "num_blocks"));
        Self {
            pool: create(num_blocks, enables_caching(message)),
            num_blocks,
            shows_state: asks_for_state(message),
            shown: Vec::new(),
            named: Vec::new(),
        }
    }

    /// Do a command: its result as JSON, if it has one.
    fn result(&mut self, command: &Json) -> Result<Option<String>, &'static str> {
        let ids = integers(command.get("block_ids"));
        let hashes = hashes(command);
        if self.shows_state {
            for hash in &hashes {
                if !self.named.contains(hash) {
                    self.named.push(*hash);
                }
            }
        }
        let pool = &mut self.pool;
        match command.get("do").and_then(Json::text).unwrap_or("") {
            "allocate" => {
                return Ok(Some(numbers(&pool.allocate(number(command, "count"))?)));
            }
            "touch" => pool.touch(&ids)?,
            "free" => pool.free(&ids)?,
            "cache" => pool.cache(&ids, &hashes)?,
            "lookup" => return Ok(hashes.first().map(|hash| optional(pool.lookup(hash)))),
            "evict" => pool.evict(&ids)?,
            "reset" => return Ok(Some(pool.reset().to_string())),
            question => return Ok(Some(self.answer_question(question, command))),
        }
        Ok(None)
    }

    /// Questions about a pool that is too large to be shown after each command.
    fn answer_question(&self, question: &str, command: &Json) -> String {
        let block = usize::try_from(number(command, "block_id")).unwrap_or(usize::MAX);
        match question {
            "num_free" => self.pool.num_free().to_string(),
            "free_order" => numbers(&self.pool.free_order()),
            "ref_count" => self.pool.ref_count(block).to_string(),
            "block_hash" => hexadecimal(self.pool.block_hash(block)),
            "free_neighbours" => self.neighbours(block),
            _ => "null".to_string(),
        }
    }

    fn neighbours(&self, block: usize) -> String {
        self.pool.free_neighbours(block).map_or_else(
            || "null".to_string(),
            |(before, after)| format!("[{},{}]", optional(before), optional(after)),
        )
    }
}

/// The hashes that a command names, whichever of its arguments holds them.
fn hashes(command: &Json) -> Vec<BlockHash> {
    let several = command.get("hashes").map_or(&[][..], Json::list).iter();
    several
        .chain(command.get("block_hash"))
        .filter_map(|hash| BlockHash::from_hexadecimal(hash.text()?))
        .collect()
}

fn hexadecimal(hash: Option<BlockHash>) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let Some(hash) = hash else {
        return "null".to_string();
    };
    let mut written = String::from("\"");
    for byte in hash.bytes() {
        written.push(char::from(DIGITS[usize::from(byte >> 4)]));
        written.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    written.push('"');
    written
}
