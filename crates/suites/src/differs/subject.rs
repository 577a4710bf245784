//! Filled images of many formats, and their damage.

use super::fields::{self, Numbers};
use super::tree::Tree;
use crate::changes::{Kind, Part, Parts, choose};
use crate::hostile::kinds::{self, Kind as Directed};
use crate::hostile::target::{I_BLOCK, Left, SUPER, Target};
use crate::hostile::{BLOCK_MAPS, PLAIN, VERITY, random_damage};
use crate::image::Image;
use fastrand::Rng;
use lanefs_device::{Device, RamDevice};
use lanefs_ondisk::checksum::Seed;
use lanefs_ondisk::superblock::Superblock;
use lanefs_ondisk::{extent, inode};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// The options of mke2fs, the size in MiB, and the state in which the image is left.
pub type Set = (&'static str, u64, Left);

use Left::{Clean, Crashed, FastCommits};

/// The formats. Those at the front are more different from each other, so that a small sample has
/// most features.
pub const SETS: [Set; 60] = [
    ("-b 1024 -J size=1", 8, Clean),
    ("-b 1024 -t ext3 -I 128 -J size=1", 8, Clean),
    ("-b 1024 -J size=1 -O inline_data,ea_inode", 8, Clean),
    ("-b 1024 -J size=1 -I 256 -O quota,project", 8, Clean),
    ("-b 1024 -J size=1 -O ^metadata_csum,^metadata_csum_seed,^64bit -g 2048", 8, Clean),
    ("-b 1024 -J size=1", 8, Crashed),
    ("-b 1024 -J size=1 -O bigalloc -C 8192", 16, Clean),
    ("-b 1024 -J size=1 -O casefold -E encoding_flags=strict +F", 8, Clean),
    ("-b 4096 -J size=4", 16, Clean),
    ("-b 1024 -t ext2 -I 256", 8, Clean),
    ("-b 1024 -J size=1 -O encrypt", 8, Clean),
    ("-b 1024 -J size=1 -O meta_bg,^resize_inode -g 512", 8, Clean),
    ("-b 1024 -t ext3 -J size=1", 8, Crashed),
    ("-b 65536 -O ^has_journal,^orphan_file", 32, Clean),
    ("-b 1024 -J size=1 -O large_dir,^flex_bg -g 1024", 8, Clean),
    ("-b 1024 -J size=1 -I 128 -O ^metadata_csum,^metadata_csum_seed,uninit_bg", 8, Clean),
    ("-b 1024 -J size=2 -O fast_commit,^orphan_file", 8, Crashed),
    ("-b 2048 -O ^has_journal,^orphan_file,^64bit", 8, Clean),
    ("-b 1024 -J size=1 -O ea_inode,^metadata_csum,^metadata_csum_seed", 8, Clean),
    ("-b 1024 -J size=1 -O sparse_super2 -g 1024", 8, Clean),
    ("-b 1024 -J size=1 -O ^extent,^64bit,^orphan_file", 8, Clean),
    ("-b 1024 -J size=1 -O inline_data,^metadata_csum,^metadata_csum_seed -I 512", 8, Clean),
    ("-b 1024 -t ext3 -J size=1 -O quota", 8, Clean),
    ("-b 4096 -J size=4 -I 128 -O encrypt,^metadata_csum", 16, Clean),
    ("-b 1024 -J size=1 -O ^dir_index,^filetype", 8, Clean),
    ("-b 1024 -J size=1 -O ^orphan_file,^metadata_csum_seed", 8, Crashed),
    ("-b 4096 -J size=4 -O bigalloc,quota -C 16384 -I 256", 32, Clean),
    ("-b 1024 -J size=1 -O verity", 8, Clean),
    ("-b 1024 -J size=1 -O ^extra_isize,^dir_nlink,^huge_file", 8, Clean),
    ("-b 1024 -J size=1 -O casefold,^metadata_csum,^metadata_csum_seed +F", 8, Clean),
    ("-b 4096 -J size=4 -O inline_data,ea_inode -I 1024", 16, Clean),
    ("-b 1024 -t ext2 -I 128 -O ^sparse_super,^resize_inode -g 1024", 8, Clean),
    ("-b 1024 -J size=1 -O ^metadata_csum,^metadata_csum_seed", 8, Crashed),
    ("-b 8192 -J size=8", 32, Clean),
    ("-b 1024 -J size=1 -O large_dir,quota,project -I 256", 8, Crashed),
    ("-b 1024 -O ^has_journal,^orphan_file,^resize_inode -g 256", 8, Clean),
    ("-b 1024 -t ext3 -I 256 -J size=1 -g 1024", 8, Clean),
    ("-b 4096 -J size=4 -O ^64bit,^flex_bg -g 512", 16, Clean),
    ("-b 1024 -J size=1 -O encrypt,inline_data,^dir_index", 8, Clean),
    ("-b 4096 -J size=6 -O fast_commit", 24, Crashed),
    ("-b 1024 -J size=1 -O bigalloc,inline_data,ea_inode -C 4096", 16, Clean),
    ("-b 16384 -O ^has_journal,^orphan_file,^metadata_csum,^metadata_csum_seed", 32, Clean),
    ("-b 1024 -J size=1 -O bigalloc,^metadata_csum,^metadata_csum_seed -C 4096", 16, Crashed),
    ("-b 1024 -J size=1 -E packed_meta_blocks=1 -g 1024", 8, Clean),
    ("-b 1024 -J size=1 -O inline_data", 8, Crashed),
    ("-b 1024 -J size=1 -E resize=65536", 8, Clean),
    ("-b 4096 -t ext3 -J size=4 -I 128", 16, Clean),
    ("-b 1024 -J size=1 -I 1024", 8, Clean),
    ("-b 1024 -J size=1 -O casefold,quota,project -I 256 +F", 8, Clean),
    ("-b 1024 -J size=1 -O encrypt,bigalloc -C 4096", 16, Clean),
    ("-b 65536 -O ^has_journal,^orphan_file,^metadata_csum,uninit_bg,^64bit -g 256", 32, Clean),
    ("-b 1024 -J size=1 -O quota -E quotatype=usrquota", 8, Crashed),
    ("-b 4096 -t ext2", 16, Clean),
    (PLAIN, 16, Clean),
    (PLAIN, 16, Crashed),
    (BLOCK_MAPS, 16, Clean),
    (BLOCK_MAPS, 16, Crashed),
    (VERITY, 16, Clean),
    ("-b 1024 -J size=2 -O fast_commit,^orphan_file", 8, FastCommits),
    ("-b 4096 -J size=6 -O fast_commit", 24, FastCommits),
];

/// The options of the images in which a file has an extent tree of the greatest depth.
const DEEP: [&str; 3] = [
    "-b 1024 -J size=1 -O large_dir,^flex_bg -g 1024",
    "-b 1024 -J size=1 -I 1024",
    "-b 1024 -J size=1 -E resize=65536",
];

/// Moves the root of a file's extent tree to a block of its own until the tree has the greatest
/// depth. Then e2fsck corrects the bitmaps and counts.
fn deepen(target: &Target) {
    const GREATEST: u16 = 5;
    let (inode, block) = (target.inode_of("data/pieces"), target.block_size());
    let superblock = Superblock::decode(&target.read(SUPER, 1024)).expect("a superblock");
    let (checksums, ino) = (superblock.checksums(), target.ino("data/pieces"));
    let (root, generation) = (inode + I_BLOCK, target.get32(inode + 0x64));
    let mut free = (1..target.len() / block).rev().filter(|place| is_free(target, *place));
    loop {
        let (count, depth) = (target.get16(root + 2), target.get16(root + 6));
        if depth >= GREATEST {
            break;
        }
        let place = free.next().expect("free blocks");
        let entries = target.read(root + 12, usize::from(count) * 12);
        let most = (block - 12) / 12;
        let head = [0xf30a, count, most as u16, depth, 0, 0];
        let mut node = [head.map(u16::to_le_bytes).concat(), entries].concat();
        node.resize(block as usize, 0);
        if let Some(seed) = checksums.seed() {
            extent::seal(&mut node, seed.of_inode(ino, generation));
        }
        target.put(place * block, &node);
        target.put16(root + 2, 1);
        target.put16(root + 6, depth + 1);
        target.put32(root + 16, place as u32);
        target.put32(root + 20, 0);
    }
    let mut record = target.read(inode, superblock.geometry().inode_size());
    let _ = inode::seal(&mut record, ino, checksums);
    target.put(inode, &record);
    let image = Image::empty();
    target.device().to_file(image.path()).expect("a copy");
    let verdict = image.e2fsck("-fy -E no_optimize_extents");
    image.assert_clean("a deep tree");
    let now = RamDevice::from_file(image.path()).expect("the copy");
    let mut piece = vec![0; 4096];
    for at in (0..target.len()).step_by(4096) {
        now.read_at(at, &mut piece).expect("the copy is read");
        if target.read(at, 4096) != piece {
            target.put(at, &piece);
        }
    }
    assert_eq!(target.get16(root + 6), GREATEST, "{}", verdict.text);
}

fn is_free(target: &Target, block: u64) -> bool {
    let (first, each) = (target.get32(SUPER + 0x14), target.get32(SUPER + 0x20));
    let (group, bit) = ((block as u32 - first) / each, (block as u32 - first) % each);
    let bits = target.read(target.group_blocks(group)[0] + u64::from(bit / 8), 1)[0];
    bits & 1 << (bit % 8) == 0
}

/// A filled image.
pub struct Subject {
    /// The format.
    pub set: Set,
    /// The image.
    pub device: Arc<RamDevice>,
    /// The bytes of the image.
    pub bytes: Vec<u8>,
    /// The tree; that of a crashed image after e2fsck has recovered it.
    pub before: Tree,
    target: Target,
    parts: Parts,
    numbers: Numbers,
    log: Vec<u64>,
}

/// Damage to an image.
#[derive(Debug, Clone, Default)]
pub struct Damage {
    /// The structure and the field, for the name of a class.
    pub place: String,
    /// What changed.
    pub what: String,
    /// The bytes to write, each piece after its offset in the image.
    pub writes: Vec<(u64, Vec<u8>)>,
}

impl Subject {
    /// Makes an image. Returns `None` and prints the reason if mke2fs is missing.
    pub fn make(set: Set) -> Option<Subject> {
        let (options, megabytes, left) = set;
        let target = Target::make(options, megabytes, left)?;
        if DEEP.contains(&options) {
            deepen(&target);
        }
        let device = RamDevice::copy_of(&target.device()).expect("memory");
        let parts = Parts::of(&device);
        let mut bytes = vec![0; device.len() as usize];
        device.read_at(0, &mut bytes).expect("the image is read");
        let before = match left {
            Clean => Tree::of(&device),
            Crashed | FastCommits => {
                let image = Image::empty();
                device.to_file(image.path()).expect("a copy");
                image.repair();
                Tree::of(&RamDevice::from_file(image.path()).expect("the copy"))
            }
        };
        let before = before.expect("a readable image");
        let block = target.block_size();
        let used = parts.all.iter().map(|part| part.at / block);
        let data = before.nodes.values().flat_map(|node| node.ranges.last());
        let data = data.map(|range| range.start / block);
        let numbers = Numbers {
            blocks: before.blocks,
            inos: before.nodes.keys().map(|ino| u64::from(*ino)).collect(),
            used: used.chain(data).filter(|block| *block > 0).collect(),
        };
        let has_log = left != Clean;
        let log = if has_log { target.log() } else { Vec::new() };
        Some(Subject { set, device: Arc::new(device), bytes, before, target, parts, numbers, log })
    }

    /// Returns whether the files are in an encrypted directory.
    pub fn is_encrypted(&self) -> bool {
        self.set.0.contains("encrypt")
    }

    /// Draws damage, and returns it with the name of the generator.
    pub fn draw(&self, rng: &mut Rng, seed: u64) -> (&'static str, Damage) {
        match rng.u32(..20) {
            0..=2 => ("random changes", self.random_change(rng)),
            3 => ("random bytes", self.random_bytes(seed)),
            4 if !self.directed().is_empty() => ("directed damage", self.one_directed(rng)),
            5..=8 if !self.log.is_empty() => ("fields of the log", self.log_field(rng)),
            _ => ("single fields", self.field(rng)),
        }
    }

    fn random_change(&self, rng: &mut Rng) -> Damage {
        let change = choose(rng, &*self.device, &self.parts);
        let place = name_of(change.part.kind).to_string();
        Damage { place, what: change.to_string(), writes: change.writes }
    }

    fn random_bytes(&self, seed: u64) -> Damage {
        let fork = self.target.fork();
        let what = random_damage(&fork, seed);
        Damage { place: "random bytes".into(), what, writes: self.differing(&fork) }
    }

    fn directed(&self) -> &'static [Directed] {
        match self.set {
            (PLAIN, _, Clean) => kinds::CLEAN,
            (PLAIN, _, Crashed) => kinds::CRASHED,
            (BLOCK_MAPS, _, Clean) => kinds::MAPS,
            (VERITY, _, Clean) => kinds::VERITY,
            _ => &[],
        }
    }

    fn one_directed(&self, rng: &mut Rng) -> Damage {
        let kind = rng.choice(self.directed()).expect("a kind");
        let fork = self.target.fork();
        (kind.damage)(&fork);
        let what = kind.name.to_string();
        Damage { place: what.clone(), what, writes: self.differing(&fork) }
    }

    fn differing(&self, fork: &Target) -> Vec<(u64, Vec<u8>)> {
        let len = self.bytes.len();
        let changes = fork.device().changes().into_iter().filter_map(|(at, new)| {
            let start = at as usize;
            let new = &new[..new.len().min(len - start)];
            (self.bytes[start..start + new.len()] != *new).then(|| (at, new.to_vec()))
        });
        changes.collect()
    }

    fn field(&self, rng: &mut Rng) -> Damage {
        loop {
            // Kinds are chosen first, so that the few superblocks are changed as often as the many
            // inodes.
            let wanted = name_of(rng.choice(&self.parts.all).expect("parts").kind);
            let wanted = if rng.bool() { *rng.choice(&NAMES).expect("names") } else { wanted };
            let same = self.parts.all.iter().filter(|part| name_of(part.kind) == wanted);
            let Some(part) = rng.choice(same.collect::<Vec<_>>()) else { continue };
            let start = part.at as usize;
            let mut bytes = self.bytes[start..start + part.len].to_vec();
            let Some(change) = fields::change(rng, part, &mut bytes, &self.numbers) else {
                continue;
            };
            let mut writes = Vec::new();
            writes.extend(self.parts.seal(&*self.device, part, &mut bytes));
            writes.push((part.at, bytes));
            let place = format!("{wanted}.{}", change.name);
            let what = format!("{} at {:#x}: {change}", shown(part), part.at);
            return Damage { place, what, writes };
        }
    }

    /// Changes a word of a descriptor, commit or revoke block of the log, and corrects the
    /// checksum.
    fn log_field(&self, rng: &mut Rng) -> Damage {
        let block = self.target.block_size() as usize;
        let bytes = |at: u64| &self.bytes[at as usize..at as usize + block];
        let is_own = |at: &&u64| bytes(**at)[..4] == [0xc0, 0x3b, 0x39, 0x98];
        let own: Vec<&u64> = self.log.iter().skip(1).filter(is_own).collect();
        let any: Vec<&u64> = self.log.iter().skip(1).take(60).collect();
        let is_any = own.is_empty() || rng.u8(..8) == 0;
        let at = **rng.choice(if is_any { &any } else { &own }).expect("blocks of the log");
        let mut new = bytes(at).to_vec();
        let used: Vec<usize> = (0..block / 4).filter(|n| new[n * 4..n * 4 + 4] != [0; 4]).collect();
        let word = rng.choice(used).unwrap_or(0).min(if rng.bool() { 12 } else { usize::MAX }) * 4;
        let old = u32::from_be_bytes([new[word], new[word + 1], new[word + 2], new[word + 3]]);
        let value = match rng.u32(..8) {
            0 => 0,
            1 => 1,
            2 => u32::MAX,
            3 => old ^ 1 << rng.u32(..32),
            4 => old.wrapping_add(1),
            5 => old.wrapping_sub(1),
            6 => self.numbers.blocks as u32,
            _ => rng.choice(&self.numbers.used).map_or(3, |block| *block as u32),
        };
        new[word..word + 4].copy_from_slice(&value.to_be_bytes());
        let kind = new[7];
        let head = bytes(self.log[0]);
        let sum_at = if kind == 2 { 16 } else { block - 4 };
        if head[0x2b] & 0x18 != 0 && matches!(kind, 1 | 2 | 5) {
            new[sum_at..sum_at + 4].fill(0);
            let sum = Seed::START.chain(&head[0x30..0x40]).chain(&new).value();
            new[sum_at..sum_at + 4].copy_from_slice(&sum.to_be_bytes());
        }
        let place = match kind {
            1 => "log descriptor",
            2 => "log commit",
            5 => "log revokes",
            _ => "log block",
        };
        let what = format!("{place} at {at:#x}: word {word:#x}: {old:#x} to {value:#x}");
        Damage { place: place.into(), what, writes: vec![(at, new)] }
    }

    /// Returns the ranges of bytes that the damage changes.
    pub fn changed(&self, damage: &Damage) -> Vec<Range<u64>> {
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for (at, bytes) in &damage.writes {
            let old = &self.bytes[*at as usize..*at as usize + bytes.len()];
            for n in (0..bytes.len()).filter(|n| bytes[*n] != old[*n]) {
                let place = at + n as u64;
                match ranges.last_mut() {
                    Some(last) if last.end == place => last.end += 1,
                    _ => ranges.push(place..place + 1),
                }
            }
        }
        ranges
    }

    /// Writes the original bytes back where `file` differs.
    pub fn restore(&self, file: &std::fs::File, now: &[u8]) -> Vec<(u64, Vec<u8>)> {
        let mut changes = Vec::new();
        for (n, (old, new)) in self.bytes.chunks(4096).zip(now.chunks(4096)).enumerate() {
            if old != new {
                let at = n as u64 * 4096;
                file.write_all_at(old, at).expect("the copy is written");
                changes.push((at, new.to_vec()));
            }
        }
        changes
    }
}

const NAMES: [&str; 14] = [
    "superblock",
    "descriptor",
    "block bitmap",
    "inode bitmap",
    "inode",
    "node",
    "pointers",
    "leaf",
    "index root",
    "index node",
    "attributes",
    "orphans",
    "log",
    "quotas",
];

fn name_of(kind: Kind) -> &'static str {
    match kind {
        Kind::Superblock => "superblock",
        Kind::Descriptor { .. } => "descriptor",
        Kind::BlockBitmap { .. } => "block bitmap",
        Kind::InodeBitmap { .. } => "inode bitmap",
        Kind::Inode { .. } => "inode",
        Kind::Node { .. } => "node",
        Kind::Pointers => "pointers",
        Kind::Leaf { .. } => "leaf",
        Kind::Index { root: true, .. } => "index root",
        Kind::Index { root: false, .. } => "index node",
        Kind::Attributes { .. } => "attributes",
        Kind::Orphans { .. } => "orphans",
        Kind::Log => "log",
        Kind::Quotas => "quotas",
    }
}

fn shown(part: &Part) -> String {
    match part.kind {
        Kind::Inode { ino } | Kind::Node { ino, .. } | Kind::Leaf { ino, .. } => {
            format!("{} of inode {}", name_of(part.kind), ino.0)
        }
        Kind::Index { ino, .. } => format!("{} of inode {}", name_of(part.kind), ino.0),
        kind => name_of(kind).to_string(),
    }
}
