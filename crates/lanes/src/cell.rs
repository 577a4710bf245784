//! Sequence-locked cells: small values read without a write.

/// A `Copy` value that one writer at a time replaces and any number read without writing.
#[derive(Debug)]
pub struct SeqCell<T> {
    value: parking_lot::RwLock<T>,
}

impl<T: Copy + Send> SeqCell<T> {
    /// Holds `value`.
    pub fn new(value: T) -> SeqCell<T> {
        SeqCell { value: parking_lot::RwLock::new(value) }
    }
    /// The value, never torn.
    pub fn load(&self) -> T {
        *self.value.read()
    }
    /// Replaces it; writers are ordered by the caller's lock.
    pub fn store(&self, value: T) {
        *self.value.write() = value;
    }
}
