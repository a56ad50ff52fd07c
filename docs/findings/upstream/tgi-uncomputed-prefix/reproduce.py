"""TGI's radix allocator gives a prompt as cached that nobody has computed.

Usage: python reproduce.py PATH/TO/text-generation-inference

Compiles backends/v3/src/radix.rs and block_allocator.rs of the checkout with `rustc`, and calls
RadixAllocator as the task behind BlockAllocator does. The crates slotmap, tracing and tokio and
the router's Env are replaced by the little of them that the two files need to compile; only slotmap
does anything here. Exit status 1 if the second request is told that its prompt is cached.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

SLOTMAP = """
use std::ops::Index;
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DefaultKey(usize);
#[derive(Debug)]
pub struct SlotMap<K, V>(Vec<Option<V>>, std::marker::PhantomData<K>);
impl<V> SlotMap<DefaultKey, V> {
    pub fn new() -> Self { SlotMap(Vec::new(), std::marker::PhantomData) }
    pub fn insert(&mut self, value: V) -> DefaultKey {
        self.0.push(Some(value));
        DefaultKey(self.0.len() - 1)
    }
    pub fn get(&self, key: DefaultKey) -> Option<&V> { self.0.get(key.0)?.as_ref() }
    pub fn get_mut(&mut self, key: DefaultKey) -> Option<&mut V> { self.0.get_mut(key.0)?.as_mut() }
    pub fn remove(&mut self, key: DefaultKey) -> Option<V> { self.0.get_mut(key.0)?.take() }
}
impl<V> Index<DefaultKey> for SlotMap<DefaultKey, V> {
    type Output = V;
    fn index(&self, key: DefaultKey) -> &V { self.get(key).expect("a key") }
}
"""
TRACING = """
#[macro_export] macro_rules! debug { ($($t:tt)*) => {{ let _ = || format!($($t)*); }}; }
#[macro_export] macro_rules! info { ($($t:tt)*) => {{ let _ = || format!($($t)*); }}; }
"""
TOKIO = """
pub fn spawn<F>(_: F) {}
pub mod sync {
    pub mod mpsc {
        #[derive(Debug)] pub struct UnboundedSender<T>(std::marker::PhantomData<T>);
        impl<T> Clone for UnboundedSender<T> { fn clone(&self) -> Self { todo!() } }
        #[derive(Debug)] pub struct UnboundedReceiver<T>(std::marker::PhantomData<T>);
        pub fn unbounded_channel<T>() -> (UnboundedSender<T>, UnboundedReceiver<T>) { todo!() }
        impl<T> UnboundedSender<T> { pub fn send(&self, _: T) -> Result<(), ()> { todo!() } }
        impl<T> UnboundedReceiver<T> { pub async fn recv(&mut self) -> Option<T> { todo!() } }
    }
    pub mod oneshot {
        #[derive(Debug)] pub struct Sender<T>(std::marker::PhantomData<T>);
        pub fn channel<T>() -> (Sender<T>, std::future::Ready<Result<T, ()>>) { todo!() }
        impl<T> Sender<T> { pub fn send(self, _: T) -> Result<(), ()> { todo!() } }
    }
}
"""
ROUTER = """
pub mod usage_stats {
    pub struct Env;
    impl Env {
        pub fn new() -> Self { Env }
        pub fn is_hpu_device(&self) -> bool { false }
    }
}
"""
MAIN = """
#[allow(warnings)] #[path = "{sources}/block_allocator.rs"] mod block_allocator;
#[allow(warnings)] #[path = "{sources}/radix.rs"] mod radix;
use block_allocator::Allocator;
use std::sync::Arc;

fn main() {{
    let mut allocator = radix::RadixAllocator::new(4, 16, None);
    let prompt = Arc::new(vec![1, 2, 3, 4, 5, 6, 7, 8]);
    let other = Arc::new(vec![11, 12, 13, 14, 15, 16, 17, 18]);
    let first = allocator.allocate(12, Some(other)).unwrap();
    println!("A prompt of 8 tokens is computed in blocks {{:?}} and ends.", first.blocks);
    allocator.free(first.blocks.clone(), first.allocation_id);
    // The queue takes blocks, puts the request back, and drops the allocation.
    let put_back = allocator.allocate(12, Some(prompt.clone())).unwrap();
    let blocks = &put_back.blocks;
    println!("Another of 8 tokens gets blocks {{blocks:?}} and is put back, not computed.");
    allocator.free(put_back.blocks.clone(), put_back.allocation_id);
    let again = allocator.allocate(12, Some(prompt)).unwrap();
    println!("The same request is scheduled.");
    println!("  expected: prefix_len 0, since nobody has computed its prompt");
    println!("  happens:  prefix_len {{}}, in blocks {{:?}}", again.prefix_len, again.blocks);
    std::process::exit(i32::from(again.prefix_len > 0));
}}
"""


def main():
    sources = Path(sys.argv[1]).resolve() / "backends" / "v3" / "src"
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        crates = {"slotmap": SLOTMAP, "tracing": TRACING, "tokio": TOKIO}
        crates["text_generation_router"] = ROUTER
        rustc = [
            "rustc",
            "--edition=2021",
            "--cap-lints=allow",
            "--out-dir",
            scratch,
            "-L",
            scratch,
        ]
        for name, text in crates.items():
            (place / f"{name}.rs").write_text(text)
            run(*rustc, "--crate-type=rlib", str(place / f"{name}.rs"))
        (place / "main.rs").write_text(MAIN.format(sources=sources))
        if run(*rustc, *(f"--extern={name}" for name in crates), str(place / "main.rs")):
            sys.exit("rustc failed")
        return run(str(place / "main"))


def run(*command):
    return subprocess.run(command, check=False).returncode  # noqa: S603 -- rustc, and what it built


if __name__ == "__main__":
    sys.exit(main())
