//! Serves a manager of sequences: version 2 of the protocol.
//!
//! Not covered: several cache groups, copies, and verbs that `Manager` does not have.

use crate::json::{list, quoted, Json};
use crate::messages::{
    asks_for_state, enables_caching, integers, number, numbers, serve_runs, size, Run,
};
use std::collections::HashMap;
use std::io;

const PROTOCOL: i64 = 2;

/// What the KV from position `first` to `end` - 1 (`None`: to the end) depends on besides the
/// tokens: an adapter, a salt, an image.
#[derive(Clone)]
pub struct ExtraKey {
    pub kind: String,
    pub value: String,
    pub first: usize,
    pub end: Option<usize>,
}

/// How an admission ends.
pub enum Admission {
    /// So many tokens at the head of the sequence are cached.
    Cached(usize),
    /// It does not fit now; nothing has changed.
    Later,
    /// It never will.
    Never,
}

/// A manager; docs/managers.md says what each operation means.
pub trait Manager {
    /// How the program introduces itself.
    const NAME: &'static str;
    const VERSION: &'static str;
    /// The rows of the profile, as a JSON object.
    const PROFILE: &'static str;
    /// The verbs that it has; the first four of these are always among them.
    const VERBS: &'static [&'static str] =
        &["admit", "append", "step", "finish", "abort", "preempt"];
    /// What of the last part below is there to be seen.
    const OBSERVERS: &'static [&'static str] =
        &["num_free", "free_order", "ref_count", "is_cached"];

    fn admit(&mut self, seq_id: i64, tokens: &[i64], extra_keys: &[ExtraKey]) -> Admission;
    /// False where it has to wait; then nothing has changed.
    fn append(&mut self, seq_id: i64, tokens: &[i64]) -> bool;
    /// Sequences, with how many of their tokens are computed.
    fn step(&mut self, batch: &[(i64, usize)]);
    /// Also `abort` and `preempt`.
    fn finish(&mut self, seq_id: i64);

    fn sequences(&self) -> Vec<i64>;
    fn block_table(&self, seq_id: i64) -> &[usize];

    fn num_free(&self) -> usize;
    /// The free blocks, head first.
    fn free_order(&self) -> Vec<usize> {
        Vec::new()
    }
    fn ref_count(&self, _block_id: usize) -> usize {
        0
    }
    fn is_cached(&self, _block_id: usize) -> bool {
        false
    }
}

/// Serves managers that `create(num_blocks, block_size, enable_caching)` makes, until the other
/// side is done.
///
/// # Errors
/// Standard input or output that fails, and a line that is not JSON.
pub fn serve_manager<M: Manager>(create: impl Fn(usize, usize, bool) -> M) -> io::Result<()> {
    serve_runs(introduce::<M>, |message| {
        ManagerRun::begin(&create, message)
    })
}

fn introduce<M: Manager>(message: &Json) -> String {
    if number(message, "protocol") < PROTOCOL {
        return format!(r#""protocol":{PROTOCOL},"error":"managers need version {PROTOCOL}""#);
    }
    format!(
        r#""protocol":{PROTOCOL},"name":{},"version":{},"level":"manager","verbs":{},"observers":{},"profile":{}"#,
        quoted(M::NAME),
        quoted(M::VERSION),
        list(M::VERBS.iter().map(|name| quoted(name))),
        list(M::OBSERVERS.iter().map(|name| quoted(name))),
        M::PROFILE,
    )
}

/// One manager, with what was shown of it last.
struct ManagerRun<M: Manager> {
    manager: M,
    num_blocks: usize,
    shows_state: bool,
    shown: HashMap<String, String>,
}

impl<M: Manager> Run for ManagerRun<M> {
    fn shows_state(&self) -> bool {
        self.shows_state
    }

    fn answer(&mut self, command: &Json) -> Vec<String> {
        let is_look = command.get("do").and_then(Json::text) == Some("show");
        let result = if is_look { None } else { self.result(command) };
        let mut parts: Vec<String> = Vec::new();
        parts.extend(result.map(|value| format!(r#""result":{value}"#)));
        if self.shows_state || is_look {
            parts.extend(self.changes());
        }
        parts
    }

    fn changes(&mut self) -> Vec<String> {
        let manager = &self.manager;
        let blocks = 0..self.num_blocks;
        let mut changed = Vec::new();
        for observer in M::OBSERVERS {
            let (name, value) = match *observer {
                "num_free" => ("num_free", manager.num_free().to_string()),
                "free_order" => ("free_order", numbers(&manager.free_order())),
                "ref_count" => (
                    "ref_counts",
                    list(blocks.clone().map(|id| manager.ref_count(id).to_string())),
                ),
                "is_cached" => (
                    "cached",
                    list(blocks.clone().map(|id| manager.is_cached(id).to_string())),
                ),
                _ => continue,
            };
            if self.shown.get(name) != Some(&value) {
                changed.push(format!(r#""{name}":{value}"#));
                self.shown.insert(name.to_string(), value);
            }
        }
        let mut tables = Vec::new();
        for seq_id in manager.sequences() {
            let table = format!("[{}]", numbers(manager.block_table(seq_id)));
            let name = seq_id.to_string();
            if self.shown.get(&name) != Some(&table) {
                tables.push(format!(r#""{name}":{table}"#));
                self.shown.insert(name, table);
            }
        }
        if !tables.is_empty() {
            changed.push(format!(r#""tables":{{{}}}"#, tables.join(",")));
        }
        changed
    }
}

impl<M: Manager> ManagerRun<M> {
    fn begin(create: &impl Fn(usize, usize, bool) -> M, message: &Json) -> Self {
        let num_blocks = size(number(message, "num_blocks"));
        let block_size = size(number(message, "block_size"));
        Self {
            manager: create(num_blocks, block_size, enables_caching(message)),
            num_blocks,
            shows_state: asks_for_state(message),
            shown: HashMap::new(),
        }
    }

    /// Do a command: its result as JSON, if it has one.
    fn result(&mut self, command: &Json) -> Option<String> {
        let manager = &mut self.manager;
        let seq_id = number(command, "seq_id");
        let tokens = || integers(command.get("tokens"));
        match command.get("do").and_then(Json::text).unwrap_or("") {
            "admit" => {
                let keys = extra_keys(command.get("extra_keys").map_or(&[][..], Json::list));
                return Some(match manager.admit(seq_id, &tokens(), &keys) {
                    Admission::Cached(count) => count.to_string(),
                    Admission::Later => quoted("later"),
                    Admission::Never => quoted("never"),
                });
            }
            "append" if !manager.append(seq_id, &tokens()) => return Some(quoted("later")),
            "append" => {}
            "step" => {
                let batch = command.get("batch").map_or(&[][..], Json::list).iter();
                let batch: Vec<_> = batch
                    .map(|entry| integers(Some(entry)))
                    .map(|entry| (entry[0], size(entry[1])))
                    .collect();
                manager.step(&batch);
            }
            "finish" | "abort" | "preempt" => manager.finish(seq_id),
            // A list for each cache group, and there is one.
            "block_table" => return Some(format!("[{}]", numbers(manager.block_table(seq_id)))),
            "num_free" => return Some(manager.num_free().to_string()),
            _ => return Some("null".to_string()),
        }
        None
    }
}

/// What KV depends on besides tokens, as a command says it.
pub(crate) fn extra_keys(keys: &[Json]) -> Vec<ExtraKey> {
    keys.iter()
        .map(|key| {
            let parts = key.list();
            ExtraKey {
                kind: parts[0].text().unwrap_or("").to_string(),
                value: format!("{:?}", parts[1]),
                first: size(parts[2].integer().unwrap_or(0)),
                end: parts[3].integer().map(size),
            }
        })
        .collect()
}
