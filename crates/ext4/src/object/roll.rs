//! The names of a small directory in one index, for who asks for many of its files while memory is
//! short.
//!
//! The way from a name to its number by the directory's blocks is the index, the leaf and the leaf's
//! own index, each found by its number. A roll has the names of all leaves, so that one look tells.
//!
//! # Why it is the truth
//!
//! Each block is told of the roll under the guard under which its contents were taken. Whoever
//! changes it, or evicts it, ends the roll first, under that guard. So what a roll that has not ended
//! leads to is what its directory leads to; of a name that it does not have it says nothing, since a
//! block that was added is in no roll. A roll that has ended stays so, and another is made.

use crate::fs::Fs;
use crate::object::home::Home;
use crate::object::inode::{Inode, InodeRef};
use crate::plan::dir::{self, NameIndex};
use lanefs_lanes::sync::Arc;
use lanefs_lanes::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use lanefs_lanes::{Cached, LaneArc, Pin};
use lanefs_ondisk::Ino;
use lanefs_ondisk::dirent::{DirFormat, Name};

/// Blocks of a directory that has a roll at most: it is made as a whole.
const MOST_BLOCKS: u32 = 32;

/// Blocks of a roll that are read for one look at the directory without.
const LOOKS: u64 = 4;

/// What a directory has for its roll.
#[derive(Default)]
pub(crate) struct RollOf {
    roll: Cached<Arc<Roll>>,
    /// Looks at the directory's blocks since the last roll was begun.
    looks: AtomicU32,
}

/// The names of a directory, as long as none changes. Its blocks have it too: if they stay in memory
/// longer than their directory, it goes with them, or with the next one.
#[derive(Default)]
pub(crate) struct Roll {
    names: Cached<RolledNames>,
    ended: AtomicBool,
}

/// What a roll is made of.
struct RolledNames {
    format: DirFormat,
    blocks: Box<[Arc<[u8]>]>,
    index: NameIndex,
    /// Where its bytes are counted.
    home: LaneArc<Home>,
}

impl RolledNames {
    /// Bytes beside the contents of blocks, which others have too.
    fn bytes(&self) -> u64 {
        let bytes = self.index.bytes() + size_of_val(&*self.blocks) + size_of::<Self>() + 256;
        bytes as u64
    }
}

impl Drop for RolledNames {
    fn drop(&mut self) {
        self.home.rolled.0.fetch_sub(self.bytes(), Ordering::Relaxed);
    }
}

/// What a roll says of a name.
pub struct OnRoll<'p> {
    /// The inode that it leads to.
    pub ino: Ino,
    roll: &'p Roll,
}

impl OnRoll<'_> {
    /// Whether it has led there since the roll was asked.
    pub fn still(&self) -> bool {
        !self.roll.has_ended()
    }
}

impl Roll {
    /// What it has is to be the truth no more. Before the change, under the guard of what changes.
    pub(crate) fn end(&self) {
        // Release: who sees the change that follows finds the roll ended. The fence, with the one in
        // `enroll`: either the names are found here, or there that it has ended.
        self.ended.store(true, Ordering::Release);
        fence(Ordering::SeqCst);
        self.names.clear();
    }

    fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    fn find<'p>(&'p self, pin: &'p Pin, name: Name<'_>) -> Option<OnRoll<'p>> {
        let names = self.names.get(pin)?;
        if self.has_ended() {
            return None;
        }
        let block = |n: usize| names.blocks.get(n).map(|block| &**block);
        let (_, entry) = names.index.find(&names.format, block, name).ok()??;
        Some(OnRoll { ino: entry.ino?, roll: self })
    }
}

impl Fs {
    /// What `name` in `dir` leads to, if the directory has a roll that has it; it may have changed
    /// when [`OnRoll::still`] is asked.
    pub fn on_roll<'p>(&self, pin: &'p Pin, dir: &'p Inode, name: &[u8]) -> Option<OnRoll<'p>> {
        let on_roll = dir.roll.roll.get(pin)?.find(pin, Name::new(name).ok()?)?;
        self.is_for_names(on_roll.ino).then_some(on_roll)
    }

    /// Makes a roll of `dir`, whose operation lock is held shared, if it was looked at so often since
    /// the last one that reading all of its blocks is little beside that.
    pub(crate) fn enroll_if_worth(&self, dir: &InodeRef) {
        let blocks = dir.size() >> self.geometry.block_size().bits();
        if blocks > u64::from(MOST_BLOCKS) || self.has_roll(dir) {
            return;
        }
        let looks = dir.roll.looks.fetch_add(1, Ordering::Relaxed);
        if LOOKS * u64::from(looks) >= blocks {
            dir.roll.looks.store(0, Ordering::Relaxed);
            // What is damaged is told by who looks for a name in it.
            let _ = self.enroll(dir);
        }
    }

    fn has_roll(&self, dir: &Inode) -> bool {
        dir.roll.roll.get(&lanefs_lanes::pin()).is_some_and(|roll| !roll.has_ended())
    }

    fn enroll(&self, dir: &InodeRef) -> Option<()> {
        let view = self.view_directory(dir).ok()?;
        let roll = Arc::new(Roll::default());
        let mut blocks = Vec::new();
        for n in view.blocks() {
            let contents = self.directory_block(dir, n).ok()?.enroll(&roll);
            if dir::has_names(&view.context, n, &contents) {
                blocks.push(contents);
            }
        }
        let format = self.dir_format;
        let of_names: Vec<&[u8]> = blocks.iter().map(|block| &**block).collect();
        let index = NameIndex::of(&format, &of_names)?;
        let names = RolledNames { format, blocks: blocks.into(), index, home: dir.home.clone() };
        names.home.rolled.0.fetch_add(names.bytes(), Ordering::Relaxed);
        roll.names.store(names);
        dir.roll.roll.store(roll.clone());
        fence(Ordering::SeqCst);
        if roll.has_ended() {
            // Then who ended it may have found no names.
            roll.names.clear();
        }
        Some(())
    }
}
