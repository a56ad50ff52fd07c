//! The loop over messages, and what is shown after each command.

use crate::json::{list, optional, quoted, read, Json};
use crate::{Allocator, BlockHash, BlockId};
use std::io::{self, BufRead, Write};
use std::panic::{catch_unwind, AssertUnwindSafe};

const PROTOCOL: i64 = 1;
const VERBS: &str = r#"["allocate","touch","free","cache","lookup","evict","reset"]"#;

/// Serves allocators that `create(num_blocks, enable_caching)` makes, until the other side is done.
///
/// # Errors
/// Standard input or output that fails, and a line that is not JSON.
pub fn serve<A: Allocator>(create: impl Fn(usize, bool) -> A) -> io::Result<()> {
    let mut run: Option<Run<A>> = None;
    let mut out = io::stdout().lock();
    for line in io::stdin().lock().lines() {
        let message = read(&line?).map_err(io::Error::other)?;
        let what = message.get("do").and_then(Json::text).unwrap_or("");
        let answer = match what {
            "start" => introduce::<A>(&message),
            "run" => {
                let started = begin(&create, &message);
                run = started.ok();
                run.as_mut().map_or_else(
                    || r#""error":"the allocator panicked while it was built""#.to_string(),
                    |run| format!("{}{}", run.state(), run.answers(&message)),
                )
            }
            "continue" => run.as_mut().map_or_else(
                || r#""error":"no run has begun""#.to_string(),
                |run| run.answers(&message),
            ),
            "stop" => String::new(),
            _ => format!(r#""error":{}"#, quoted(&format!("unknown message {what}"))),
        };
        let seq = message.get("seq").and_then(Json::integer).unwrap_or(0);
        let comma = if answer.is_empty() { "" } else { "," };
        writeln!(out, r#"{{"seq":{seq}{comma}{answer}}}"#)?;
        out.flush()?;
        if what == "stop" {
            break;
        }
    }
    Ok(())
}

fn introduce<A: Allocator>(message: &Json) -> String {
    // Whoever speaks a later version understands this one, too.
    if message.get("protocol").and_then(Json::integer) < Some(PROTOCOL) {
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

fn begin<A: Allocator>(
    create: &impl Fn(usize, bool) -> A,
    message: &Json,
) -> std::thread::Result<Run<A>> {
    let num_blocks = message
        .get("num_blocks")
        .and_then(Json::integer)
        .unwrap_or(0);
    let num_blocks = usize::try_from(num_blocks).unwrap_or(0);
    let enable_caching = message.get("enable_caching") == Some(&Json::Boolean(true));
    let shows_state = message.get("show").and_then(Json::text) == Some("state");
    let pool = catch_unwind(AssertUnwindSafe(|| create(num_blocks, enable_caching)))?;
    let shown = Vec::new();
    Ok(Run {
        pool,
        num_blocks,
        shows_state,
        shown,
        named: Vec::new(),
    })
}

/// One instance, with what was shown of it last.
struct Run<A: Allocator> {
    pool: A,
    num_blocks: usize,
    shows_state: bool,
    shown: Vec<(&'static str, String)>,
    /// The hashes that commands of this run have named, in that order.
    named: Vec<BlockHash>,
}

impl<A: Allocator> Run<A> {
    fn state(&mut self) -> String {
        if !self.shows_state {
            return String::new();
        }
        format!(r#""state":{{{}}},"#, self.changes().join(","))
    }

    fn answers(&mut self, message: &Json) -> String {
        let mut answers = Vec::new();
        for command in message.get("commands").map_or(&[][..], Json::list) {
            match catch_unwind(AssertUnwindSafe(|| self.answer(command))) {
                Ok(answer) => answers.push(format!("{{{answer}}}")),
                Err(panic) => {
                    answers.push(format!(r#"{{"error":{}}}"#, quoted(&words_of(&*panic))));
                    break; // what it does from here on means nothing
                }
            }
        }
        format!(r#""answers":{}"#, list(answers))
    }

    /// The parts of the answer to one command.
    fn answer(&mut self, command: &Json) -> String {
        let mut parts = Vec::new();
        match self.result(command) {
            Ok(result) => parts.extend(result.map(|value| format!(r#""result":{value}"#))),
            Err(reason) => parts.push(format!(r#""refused":{}"#, quoted(reason))),
        }
        if self.shows_state {
            parts.extend(self.changes());
        }
        parts.join(",")
    }

    /// Do a command: its result as JSON, if it has one.
    fn result(&mut self, command: &Json) -> Result<Option<String>, &'static str> {
        let ids = integers(command, "block_ids");
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
                let count = command.get("count").and_then(Json::integer).unwrap_or(0);
                let taken = pool.allocate(count)?;
                return Ok(Some(list(taken.iter().map(usize::to_string))));
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
        let block = command.get("block_id").and_then(Json::integer).unwrap_or(0);
        let block = usize::try_from(block).unwrap_or(usize::MAX);
        match question {
            "num_free" => self.pool.num_free().to_string(),
            "free_order" => list(self.pool.free_order().iter().map(usize::to_string)),
            "ref_count" => self.pool.ref_count(block).to_string(),
            "block_hash" => hexadecimal(self.pool.block_hash(block)),
            "free_neighbours" => self.neighbours(block),
            _ => "null".to_string(),
        }
    }

    /// The parts of the state that are not as they were when they were shown last.
    fn changes(&mut self) -> Vec<String> {
        let blocks = 0..self.num_blocks;
        let sees = |name: &str| A::OBSERVERS.contains(&name);
        let mut parts = vec![("num_free", self.pool.num_free().to_string())];
        if sees("free_order") {
            parts.push((
                "free_order",
                list(self.pool.free_order().iter().map(usize::to_string)),
            ));
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

    fn neighbours(&self, block: usize) -> String {
        self.pool.free_neighbours(block).map_or_else(
            || "null".to_string(),
            |(before, after)| format!("[{},{}]", optional(before), optional(after)),
        )
    }
}

fn integers(command: &Json, key: &str) -> Vec<BlockId> {
    command
        .get(key)
        .map_or(&[][..], Json::list)
        .iter()
        .filter_map(Json::integer)
        .collect()
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

fn words_of(panic: &(dyn std::any::Any + Send)) -> String {
    let words = panic.downcast_ref::<&str>().map(ToString::to_string);
    let words = words.or_else(|| panic.downcast_ref::<String>().cloned());
    format!("panicked: {}", words.unwrap_or_default())
}
