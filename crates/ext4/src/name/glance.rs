//! The attributes of a file that is not made an inode in memory for it.
//!
//! When memory is short, who walks a large tree and asks for each file once would throw out with each
//! inode one that is used, for nothing. So the record is read where it is, in its table's block, and
//! the name in its directory's block; neither is kept but for the blocks, which have a dozen files
//! and a hundred names more. Who asks again soon is taken for one who will ask once more: then the
//! inode is loaded, now and then.
//!
//! # Why it is the truth
//!
//! A record in its table block's base is the latest as long as its inode is not in memory: what is
//! dirty is not evicted, and no base is forgotten while an inode of it is in memory. So what is read
//! from a base after the inode was not found has been the truth in between: it is what was there when
//! it was not found, or what an inode that was loaded since left there. (An inode in memory holds its
//! table's block: of one that nobody holds none is.) The name is looked at before
//! and after, and led to the number all the while; a number that a name leads to stays its inode's.

use crate::fs::Fs;
use crate::object::inode::attr_of;
use crate::object::meta::Contents;
use crate::object::table::WasSeen;
use crate::plant::{Step, left_out};
use crate::{Attr, InodeRef};
use lanefs_lanes::Pin;
use lanefs_lanes::sync::atomic::Ordering;
use lanefs_ondisk::dirent::Name;
use lanefs_ondisk::inode as disk;
use lanefs_ondisk::{Block, FileType, Ino};

/// Of so many inodes that are asked for again one is loaded: more would, in a walk of more files than
/// fit that is repeated, throw out each other.
const KEPT: u64 = 4;

/// What a look at a record came to.
enum Glance {
    Seen(Attr),
    /// The record's block has to be read.
    NotRead,
    /// For somebody else to tell: it is in memory, or worth to be, or damaged.
    Elsewhere,
}

impl Fs {
    /// Whether memory is short, so that a file should not be made an inode in memory only because
    /// somebody asks for its attributes.
    pub fn is_crowded(&self) -> bool {
        self.pressure.crowded.0.load(Ordering::Relaxed)
    }

    /// The attributes of `ino`, if it is not in memory but its table's block is. A name that leads to
    /// it has to be looked at before and after, under the pin.
    #[inline]
    pub fn glance_at(&self, pin: &Pin, ino: Ino) -> Option<Attr> {
        match self.glance_at_record(pin, ino) {
            Glance::Seen(attr) => Some(attr),
            Glance::NotRead | Glance::Elsewhere => None,
        }
    }

    /// The attributes of what `name` in `dir` leads to, told from blocks. `None` if the inode is in
    /// memory or worth to be, there is no such name, or anything else is to be told of it: then a
    /// look-up has to.
    pub fn glance(&self, dir: &InodeRef, name: &[u8]) -> Option<Attr> {
        let name = Name::new(name).ok()?;
        let _shared = dir.op.shared();
        self.enroll_if_worth(dir);
        let mut held = None;
        // The second time what was not in memory has been read.
        for _ in 0..2 {
            match self.glance_once(dir, name)? {
                (_, Glance::Seen(attr)) => return Some(attr),
                (_, Glance::Elsewhere) => return None,
                (ino, Glance::NotRead) => {
                    let place = self.geometry.inode_place(ino)?;
                    // Held until it is seen, or it might be gone again.
                    let table = held.insert(self.table_block(place.group, place.table_block).ok()?);
                    table.base(self).ok()?;
                    self.tables.note_read(table);
                    self.note_load();
                }
            }
        }
        None
    }

    fn glance_once(&self, dir: &InodeRef, name: Name<'_>) -> Option<(Ino, Glance)> {
        if dir.file_type != FileType::Directory || dir.links() == 0 {
            return None;
        }
        let pin = lanefs_lanes::pin();
        if let Some(on_roll) = self.on_roll(&pin, dir, name.bytes()) {
            let seen = self.glance_at_record(&pin, on_roll.ino);
            return on_roll.still().then_some((on_roll.ino, seen));
        }
        drop(pin);
        let view = self.view_directory(dir).ok()?;
        let leaf = view.leaf_of(name).ok()??;
        let (block, kind) = self.directory_place(dir, leaf).ok()?;
        let mut glance = None;
        let look = |contents: &Contents<'_>| view.find_in(leaf, contents, name);
        self.meta
            .look(self, block, kind, look, |found, still| {
                let Ok(Some(found)) = found else { return };
                let seen = self.glance_at_record(&lanefs_lanes::pin(), found.ino);
                if still() {
                    glance = Some((found.ino, seen));
                }
            })
            .ok()?
            .ok()?;
        glance
    }

    #[inline]
    fn glance_at_record(&self, pin: &Pin, ino: Ino) -> Glance {
        if !self.is_for_names(ino) {
            return Glance::Elsewhere;
        }
        let Some(place) = self.geometry.inode_place(ino) else { return Glance::Elsewhere };
        let Some(group) = self.descriptors.get(place.group.0 as usize) else {
            return Glance::Elsewhere;
        };
        let block = Block(group.inode_table.0 + u64::from(place.table_block));
        let peek = || self.tables.peek(pin, block);
        let Some(mut table) = peek() else { return Glance::NotRead };
        // First that it is not in memory, then the record: see above.
        if !table.is_idle() && !left_out(Step::GlanceMissesInode) {
            if self.inodes.is_in_memory(pin, ino) {
                return Glance::Elsewhere;
            }
            // It may have been evicted in between.
            table = match peek() {
                Some(table) => table,
                None => return Glance::NotRead,
            };
        }
        let look = |base: &[u8]| {
            let raw = self.record_in(base, place.offset)?;
            let decoded = disk::Inode::decode(raw, ino, &self.geometry, self.checksums).ok()?;
            let file_type = decoded.file_type()?;
            (decoded.links > 0).then(|| attr_of(ino, file_type, &decoded))
        };
        match table.look(place.index, look) {
            None => Glance::NotRead,
            Some((None, _)) => Glance::Elsewhere,
            Some((Some(_), WasSeen::Yes)) if self.keeps_this_one() => Glance::Elsewhere,
            Some((Some(attr), _)) => Glance::Seen(attr),
        }
    }

    /// Whether of those that are asked for again this one is loaded.
    fn keeps_this_one(&self) -> bool {
        let again = self.pressure.again.mine().fetch_add(1, Ordering::Relaxed);
        again.is_multiple_of(KEPT)
    }
}
