//! The pool of `pool.rs` as a program that Poolproof certifies.
//!
//!     poolproof certify 'cmd:./lru-pool'
//!     poolproof certify 'cmd:./lru-pool --bug drop-all-copies'     is refused

mod pool;

use pool::LruPool;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let drops_all_copies = arguments == ["--bug", "drop-all-copies"];
    if !drops_all_copies && !arguments.is_empty() {
        eprintln!("usage: lru-pool [--bug drop-all-copies]");
        return ExitCode::from(2);
    }
    let create = |num_blocks, caching| LruPool::new(num_blocks, caching, drops_all_copies);
    match poolproof::serve(create) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}
