//! The manager of `lib.rs` as a program that Poolproof certifies.
//!
//!     poolproof certify 'cmd:./lru-manager'
//!     poolproof certify 'cmd:./lru-manager --bug keep-old-names'     is refused

use lru_manager::LruManager;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let keeps_old_names = arguments == ["--bug", "keep-old-names"];
    if !keeps_old_names && !arguments.is_empty() {
        eprintln!("usage: lru-manager [--bug keep-old-names]");
        return ExitCode::from(2);
    }
    let create = |num_blocks, block_size, caching| {
        LruManager::new(num_blocks, block_size, caching, keeps_old_names)
    };
    match poolproof::serve_manager(create) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}
