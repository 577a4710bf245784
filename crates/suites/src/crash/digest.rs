//! Digests of crash states: states with the same bytes have the same digest.

use lanefs_device::{Device, OverlayDevice};
use std::collections::HashMap;
use std::sync::Arc;

/// Computes digests of states that share one base. Contents that successive states share are hashed
/// once.
pub struct Digests<'h> {
    base: &'h OverlayDevice,
    /// The digest of the base, computed from its name.
    start: u64,
    /// For each offset, the last content that was hashed there, and what this content added to the
    /// digest.
    known: HashMap<u64, (Arc<[u8]>, u64)>,
}

impl<'h> Digests<'h> {
    /// Prepares to compute digests of states over `base`. Bases with different contents need
    /// different names.
    pub fn new(base: &'h OverlayDevice, name: &str) -> Digests<'h> {
        Digests { base, start: hash(0, name.as_bytes()), known: HashMap::new() }
    }

    /// Returns the digest of a state. It is the digest of the base plus a hash of each granule (the
    /// unit of the overlay's changes) that differs from the base.
    pub fn of(&mut self, state: &OverlayDevice) -> u64 {
        let changes = state.changes();
        changes
            .into_iter()
            .fold(self.start, |sum, (at, bytes)| sum.wrapping_add(self.part(at, bytes)))
    }

    fn part(&mut self, at: u64, bytes: Arc<[u8]>) -> u64 {
        if let Some((known, part)) = self.known.get(&at)
            && Arc::ptr_eq(known, &bytes)
        {
            return *part;
        }
        let part = if self.is_as_in_base(at, &bytes) { 0 } else { hash(at, &bytes) };
        self.known.insert(at, (bytes, part));
        part
    }

    fn is_as_in_base(&self, at: u64, bytes: &[u8]) -> bool {
        let mut base = vec![0; bytes.len().min((self.base.len() - at) as usize)];
        self.base.read_at(at, &mut base).is_ok_and(|()| base[..] == bytes[..base.len()])
    }
}

/// Hashes `bytes` at offset `at` by folding products of words. This simple hash suffices to
/// distinguish states.
fn hash(at: u64, bytes: &[u8]) -> u64 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let fold = |sum: u64, word: u64| {
        let product = u128::from(sum ^ word) * u128::from(ODD);
        (product as u64) ^ ((product >> 64) as u64)
    };
    let mut sum = fold(at, ODD);
    let mut words = bytes.chunks_exact(8);
    for word in &mut words {
        sum = fold(sum, u64::from_le_bytes(word.try_into().unwrap_or_default())).rotate_left(23);
    }
    fold(words.remainder().iter().fold(sum, |sum, byte| fold(sum, u64::from(*byte))), ODD)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lanefs_device::RamDevice;

    #[test]
    fn states_with_the_same_bytes_have_the_same_digest_and_no_others() {
        let ram = Arc::new(RamDevice::create(64 << 10).expect("memory"));
        let base = OverlayDevice::new(ram, u64::MAX);
        let mut digests = Digests::new(&base, "base");
        let unchanged = digests.of(&base);
        let (a, b) = (base.fork(), base.fork());
        a.write_at(5000, &[1]).expect("a write");
        a.write_at(9000, &[2]).expect("a write");
        b.write_at(9000, &[2]).expect("a write");
        assert_ne!(digests.of(&a), digests.of(&b));
        b.write_at(5000, &[1]).expect("a write");
        assert_eq!(digests.of(&a), digests.of(&b));
        a.write_at(5000, &[0]).expect("a write");
        a.write_at(9000, &[0]).expect("a write");
        assert_eq!(digests.of(&a), unchanged);
    }
}
