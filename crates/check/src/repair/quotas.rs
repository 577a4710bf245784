//! Repairs quota files: the usage is counted again, and limits are kept if they can be read.

use super::inode_offsets::{BLOCK, BLOCK_END, FLAGS, LINKS, MODE, set_size};
use super::mender::{Mender, put16, put32};
use super::salvage::{EXTENT_MAGIC, Salvaged as Mapping, push_run};
use crate::bytes::le16;
use crate::place::Place;
use crate::quota::{self, LARGEST};
use crate::record::Record;
use crate::report::Finding;
use lanefs_ondisk::extent::{Extent, State};
use lanefs_ondisk::inode::InodeFlags;
use lanefs_ondisk::quota::{BLOCK as QUOTA_BLOCK, BLOCKS_OF_AN_ID, Kind, QuotaFile, Salvaged};
use lanefs_ondisk::quota::{Quota, Usage};
use lanefs_ondisk::{Block, FileBlock, FileType, Ino};
use std::collections::BTreeMap;

impl Mender<'_> {
    /// Mends the quota files that have faults.
    pub fn mend_quotas(&mut self, found: &[Finding]) {
        let files: Vec<(Kind, Ino)> = quota::files(self.run).collect();
        for (kind, ino) in files {
            if found.iter().any(|finding| finding.place == Place::Inode { ino }) {
                self.mend_quota_file(kind, ino);
            }
        }
    }

    /// Removes from the superblock the reference to an inode that is not a quota file.
    pub fn forget_quotas(&mut self, ino: Ino) {
        let edited = self.edit_superblock(|raw| {
            let fields =
                [&mut raw.s_usr_quota_inum, &mut raw.s_grp_quota_inum, &mut raw.s_prj_quota_inum];
            fields.into_iter().filter(|field| field.get() == ino.0).for_each(|field| field.set(0));
        });
        if edited {
            self.act(Place::Superblock, format!("{ino} does not count as a quota file any more"));
        }
    }

    fn mend_quota_file(&mut self, kind: Kind, ino: Ino) {
        let Some((mut bytes, record)) = self.read_inode(ino) else { return };
        let content = quota::content(self.run, ino, &record);
        let usages = quota::usages(self.run, kind);
        // Only the part before the first hole or unreadable block is decoded. If the part is valid
        // by itself, the quota file does not use the blocks after it.
        let whole = content.fault.map_or(content.bytes.len(), |(at, _)| at);
        let before = content.bytes.get(..whole).unwrap_or_default();
        let (file, what) = match QuotaFile::decode(before.to_vec(), kind) {
            Ok(file) => (Some(file), "its usage is counted anew"),
            Err(_) => (rebuilt(content.bytes, kind, &usages), "written anew, with its limits"),
        };
        let Some(file) = file.and_then(|file| counted(file, &usages)) else { return };
        self.open_inode(&mut bytes, &record);
        if self.store(ino, &mut bytes, file.bytes()) {
            self.act(Place::Inode { ino }, format!("quotas of {}s: {what}", kind.name()));
        }
    }

    /// Turns an inode into a regular file whose content is in blocks.
    fn open_inode(&self, bytes: &mut [u8], record: &Record) {
        if record.mode == 0 {
            self.clear_bytes(bytes);
            for time in [0x08, 0x0c, 0x10] {
                put32(bytes, time, self.time());
            }
        }
        put16(bytes, MODE, FileType::Regular.mode_bits() | 0o600);
        put16(bytes, LINKS, record.links.max(1));
        let has_tree = le16(&record.block, 0) == EXTENT_MAGIC;
        let mut flags = record.flags;
        if !record.maps_blocks() || flags.contains(InodeFlags::EXTENTS) != has_tree {
            let kind = if self.has_extents() { InodeFlags::EXTENTS } else { InodeFlags::empty() };
            flags = flags & InodeFlags::HUGE_FILE | kind;
            if let Some(field) = bytes.get_mut(BLOCK..BLOCK_END) {
                field.fill(0);
            }
        }
        put32(bytes, FLAGS, flags.bits());
    }

    /// Writes `content` into a file. Returns false, and changes nothing, if there is no space.
    fn store(&mut self, ino: Ino, bytes: &mut [u8], content: &[u8]) -> bool {
        let size = self.run.volume.block_bytes();
        let mut mapping = self.salvage(ino, &Record::decode(bytes));
        let Some(extents) = self.dense(&mapping.extents, content.len().div_ceil(size) as u32)
        else {
            return false;
        };
        mapping = Mapping { extents: extents.clone(), ..mapping };
        if !self.rebuild(ino, bytes, mapping) {
            return false;
        }
        let places = extents
            .iter()
            .flat_map(|extent| (0..u64::from(extent.len)).map(|n| Block(extent.block.0 + n)));
        for (place, part) in places.zip(content.chunks(size)) {
            let mut block = part.to_vec();
            block.resize(size, 0);
            self.write_block(place, &block);
        }
        set_size(bytes, content.len() as u64);
        self.write_inode(ino, bytes.to_vec());
        true
    }

    /// Returns written extents that map all of the first `blocks` blocks of a file. The extents up
    /// to the file's first hole are kept, and newly allocated extents follow.
    fn dense(&mut self, old: &[Extent], blocks: u32) -> Option<Vec<Extent>> {
        let mut extents: Vec<Extent> = Vec::new();
        let mut next = 0;
        for extent in old.iter().filter_map(|extent| extent.clip(&(0..blocks))) {
            if extent.start.0 != next {
                break;
            }
            next = extent.end();
            push_run(&mut extents, Extent { state: State::Written, ..extent });
        }
        let within_cluster = (1u32 << self.run.volume.geometry.cluster_bits()) - 1;
        for at in next..blocks {
            let block = match extents.last().filter(|_| at & within_cluster != 0) {
                Some(last) => Block(last.block.0 + u64::from(last.len)),
                None => self.allocate()?,
            };
            let extent = Extent { start: FileBlock(at), len: 1, block, state: State::Written };
            push_run(&mut extents, extent);
        }
        Some(extents)
    }
}

/// Returns a new quota file with all entries of `bytes` that can be read.
fn rebuilt(bytes: Vec<u8>, kind: Kind, usages: &BTreeMap<u32, Usage>) -> Option<QuotaFile> {
    let usage = |id: u32| usages.get(&id).copied().unwrap_or_default();
    let salvaged = Salvaged::read(bytes, kind, |id, quota| quota.usage == usage(id));
    let mut file = QuotaFile::new(kind);
    if let Some(grace) = salvaged.grace {
        file.set_grace(grace);
    }
    salvaged.entries.into_iter().try_for_each(|(id, quota)| put(&mut file, id, quota))?;
    Some(file)
}

/// Returns the quota file with `usages` as the usage of all ids, or `None` if the file would become
/// too large.
fn counted(mut file: QuotaFile, usages: &BTreeMap<u32, Usage>) -> Option<QuotaFile> {
    for id in file.ids() {
        let usage = usages.get(&id).copied().unwrap_or_default();
        let quota = file.get(id)?;
        if quota.usage != usage {
            file.set(id, &Quota { usage, ..quota });
        }
    }
    let new = usages.iter().filter(|(id, _)| file.get(**id).is_none());
    let new: Vec<_> = new.map(|(id, usage)| (*id, *usage)).collect();
    new.into_iter()
        .try_for_each(|(id, usage)| put(&mut file, id, Quota { usage, ..Quota::default() }))?;
    Some(file)
}

/// Sets the entry of `id`, and adds the entry if it is missing.
fn put(file: &mut QuotaFile, id: u32, quota: Quota) -> Option<()> {
    if !file.add(id) {
        file.grow(BLOCKS_OF_AN_ID as usize * QUOTA_BLOCK);
        (file.bytes().len() as u64 <= LARGEST && file.add(id)).then_some(())?;
    }
    file.set(id, &quota).then_some(())
}
