//! Stands in for the crate `slotmap`: the operations that an engine's radix trie uses.
//!
//! A key names a slot and how often it was filled, so that a key of what was removed finds nothing.

use std::ops::Index;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DefaultKey {
    slot: usize,
    filled: u32,
}

#[derive(Debug)]
pub struct SlotMap<K, V> {
    slots: Vec<(u32, Option<V>)>,
    free: Vec<usize>,
    keys: std::marker::PhantomData<K>,
}

impl<V> SlotMap<DefaultKey, V> {
    pub fn new() -> Self {
        SlotMap {
            slots: Vec::new(),
            free: Vec::new(),
            keys: std::marker::PhantomData,
        }
    }

    pub fn insert(&mut self, value: V) -> DefaultKey {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push((0, None));
            self.slots.len() - 1
        });
        let (filled, place) = &mut self.slots[slot];
        *filled += 1;
        *place = Some(value);
        DefaultKey {
            slot,
            filled: *filled,
        }
    }

    pub fn get(&self, key: DefaultKey) -> Option<&V> {
        let (filled, value) = self.slots.get(key.slot)?;
        value.as_ref().filter(|_| *filled == key.filled)
    }

    pub fn get_mut(&mut self, key: DefaultKey) -> Option<&mut V> {
        let (filled, value) = self.slots.get_mut(key.slot)?;
        value.as_mut().filter(|_| *filled == key.filled)
    }

    pub fn remove(&mut self, key: DefaultKey) -> Option<V> {
        self.get(key)?;
        self.free.push(key.slot);
        self.slots[key.slot].1.take()
    }
}

impl<V> Index<DefaultKey> for SlotMap<DefaultKey, V> {
    type Output = V;

    fn index(&self, key: DefaultKey) -> &V {
        self.get(key).expect("invalid SlotMap key used")
    }
}
