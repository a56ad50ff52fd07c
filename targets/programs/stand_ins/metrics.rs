//! Stands in for the crate `metrics`: nothing is counted.

pub struct Counter;

impl Counter {
    pub fn increment(&self, _by: u64) {}
}

#[macro_export]
macro_rules! counter {
    ($($named:tt)*) => {
        $crate::Counter
    };
}
