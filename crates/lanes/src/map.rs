//! A concurrent hash map: look-ups write nothing, changes take one bucket.

use crate::Pin;
use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hash};

const SHARDS: usize = 256;

#[repr(align(128))]
struct Shard<K, V>(parking_lot::RwLock<HashMap<K, V, BuildHasherDefault<DefaultHasher>>>);

/// A map from `K` to `V`, where `V` is cheap to clone (an `Arc`).
pub struct Map<K, V> {
    shards: Box<[Shard<K, V>]>,
    hasher: BuildHasherDefault<DefaultHasher>,
}

impl<K: Hash + Eq + Clone, V: Clone> Map<K, V> {
    /// An empty map.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Map<K, V> {
        let shards =
            (0..SHARDS).map(|_| Shard(parking_lot::RwLock::new(HashMap::default()))).collect();
        Map { shards, hasher: BuildHasherDefault::default() }
    }

    fn shard(
        &self,
        key: &K,
    ) -> &parking_lot::RwLock<HashMap<K, V, BuildHasherDefault<DefaultHasher>>> {
        &self.shards[self.hasher.hash_one(key) as usize % SHARDS].0
    }

    /// Runs `f` on the value of `key`, without cloning it.
    pub fn with<R>(&self, _pin: &Pin, key: &K, f: impl FnOnce(&V) -> R) -> Option<R> {
        self.shard(key).read().get(key).map(f)
    }

    /// A clone of the value.
    pub fn get(&self, key: &K) -> Option<V> {
        self.shard(key).read().get(key).cloned()
    }

    /// The value of `key`, made and inserted under the bucket's lock if it was absent.
    pub fn get_or_insert_with(&self, key: &K, make: impl FnOnce() -> V) -> V {
        if let Some(v) = self.get(key) {
            return v;
        }
        self.shard(key).write().entry(key.clone()).or_insert_with(make).clone()
    }

    /// Sets the value; the one before is returned.
    pub fn insert(&self, key: K, value: V) -> Option<V> {
        self.shard(&key).write().insert(key, value)
    }

    /// Removes `key` if `condition` holds under the bucket's lock.
    pub fn remove_if(&self, key: &K, condition: impl FnOnce(&V) -> bool) -> Option<V> {
        let mut shard = self.shard(key).write();
        if shard.get(key).is_some_and(condition) { shard.remove(key) } else { None }
    }

    /// How many entries there are; a sum over the buckets.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|s| s.0.read().len()).sum()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Runs `visit` on the entries, bucket by bucket; entries that come or go meanwhile may be missed.
    pub fn for_each(&self, mut visit: impl FnMut(&K, &V)) {
        for shard in &self.shards {
            shard.0.read().iter().for_each(|(k, v)| visit(k, v));
        }
    }

    /// Keeps what `keep` says, bucket by bucket.
    pub fn retain(&self, mut keep: impl FnMut(&K, &V) -> bool) {
        for shard in &self.shards {
            shard.0.write().retain(|k, v| keep(k, v));
        }
    }
}
