//! The names of one block, by hash.
//!
//! A leaf has a hundred names and more, and to look for one is to walk half of them. Who walks a tree
//! asks for each: with this each is found at once, for one pass over the block.

use lanefs_ondisk::dirent::{self, Cause, DirFormat, Entry, Name};

/// Where the names of a block are. It holds for the contents that it was made of.
pub struct NameIndex {
    /// A power of two, at most half of them used: a quarter of the record's offset, and one; or zero.
    slots: Box<[u16]>,
}

impl NameIndex {
    /// Of a leaf, or the block of a linear directory; `None` if it is damaged, or too large.
    pub fn of(format: &DirFormat, block: &[u8]) -> Option<NameIndex> {
        let mut places: Vec<(u16, u64)> = Vec::with_capacity(block.len() / dirent::MIN_RECORD);
        for place in dirent::places(format, block).ok()? {
            let (offset, name) = place.ok()?;
            places.push((u16::try_from(offset / 4 + 1).ok()?, lanefs_lanes::hash_of(name)));
        }
        let mut slots = vec![0; (2 * places.len()).next_power_of_two()].into_boxed_slice();
        for (place, hash) in places {
            let free = probe(slots.len(), hash).find(|&at| slots.get(at) == Some(&0))?;
            *slots.get_mut(free)? = place;
        }
        Some(NameIndex { slots })
    }

    /// The entry of that name in `block`, whose index this is.
    ///
    /// # Errors
    /// A record that is none: the block is another.
    pub fn find<'a>(
        &self,
        format: &DirFormat,
        block: &'a [u8],
        name: Name<'_>,
    ) -> Result<Option<Entry<'a>>, Cause> {
        for at in probe(self.slots.len(), lanefs_lanes::hash_of(name.bytes())) {
            let place = self.slots.get(at).copied().unwrap_or(0);
            let Some(quarter) = place.checked_sub(1) else { break };
            let offset = usize::from(quarter) * 4;
            if let Some(entry) = dirent::named_at(format, block, offset, name)? {
                return Ok(Some(entry));
            }
        }
        Ok(None)
    }
}

/// Of `len` slots, a power of two, those to look at for a name of this hash, each once.
fn probe(len: usize, hash: u64) -> impl Iterator<Item = usize> {
    (0..len).map(move |n| (hash as usize).wrapping_add(n) & (len - 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dir::tests::{Directory, context, name};
    use lanefs_ondisk::Ino;
    use lanefs_ondisk::hash::HashVersion;

    fn block_of(names: &[String]) -> Directory {
        let mut dir = Directory::new(context(4096, HashVersion::HalfMd4));
        names.iter().for_each(|name| dir.insert(name.as_bytes(), Ino(20)).expect("room"));
        assert_eq!(dir.blocks.len(), 1);
        dir
    }

    #[test]
    fn every_name_of_a_block_is_found_where_a_walk_finds_it() {
        for count in [0, 1, 2, 50, 120] {
            let names: Vec<String> = (0..count).map(|n| format!("name {n}")).collect();
            let dir = block_of(&names);
            let (format, block) = (&dir.cx.format, &*dir.blocks[0]);
            let index = NameIndex::of(format, block).expect("sound");
            for wanted in names.iter().map(String::as_str).chain(["other", "name", "name 121"]) {
                let walked = dirent::find(format, block, name(wanted.as_bytes())).expect("sound");
                let found = index.find(format, block, name(wanted.as_bytes())).expect("sound");
                assert_eq!(found, walked);
                assert_eq!(found.is_some(), names.iter().any(|name| name == wanted));
            }
        }
    }

    #[test]
    fn a_damaged_block_has_no_index() {
        let dir = block_of(&["a".into(), "b".into()]);
        let mut block = dir.blocks[0].to_vec();
        // The length of the second record.
        block[12 + 4] = 3;
        assert!(NameIndex::of(&dir.cx.format, &block).is_none());
    }
}
