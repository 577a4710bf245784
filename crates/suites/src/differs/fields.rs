//! Changes of single fields. The checksum of the changed structure is corrected, so that a repair
//! sees the field and not only a wrong checksum.

use crate::changes::{Kind, Part};
use fastrand::Rng;
use std::fmt;

/// A field of a structure.
#[derive(Debug, Clone)]
pub struct Field {
    /// The name of the field.
    pub name: &'static str,
    /// The offset in the part.
    pub at: usize,
    /// The length in bytes, at most 8.
    pub len: usize,
    /// The order of the field's bytes.
    pub order: Order,
}

/// The order of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Order {
    Little,
    Big,
}

impl Field {
    fn read(&self, bytes: &[u8]) -> u64 {
        let mut value = [0; 8];
        let field = &bytes[self.at..self.at + self.len];
        match self.order {
            Order::Little => value[..self.len].copy_from_slice(field),
            Order::Big => field.iter().rev().zip(&mut value).for_each(|(from, to)| *to = *from),
        }
        u64::from_le_bytes(value)
    }

    fn write(&self, bytes: &mut [u8], value: u64) {
        let value = value.to_le_bytes();
        let field = &mut bytes[self.at..self.at + self.len];
        field.copy_from_slice(&value[..self.len]);
        if self.order == Order::Big {
            field.reverse();
        }
    }
}

/// A change of a field.
#[derive(Debug, Clone)]
pub struct FieldChange {
    /// The name of the field.
    pub name: &'static str,
    at: usize,
    old: u64,
    new: u64,
}

impl fmt::Display for FieldChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FieldChange { name, at, old, new } = self;
        write!(f, "{name} at {at:#x}: {old:#x} to {new:#x}")
    }
}

/// Numbers of the image that a field may get.
#[derive(Debug, Clone, Default)]
pub struct Numbers {
    /// The number of blocks.
    pub blocks: u64,
    /// Inode numbers in use.
    pub inos: Vec<u64>,
    /// Blocks in use by metadata or files.
    pub used: Vec<u64>,
}

/// Changes a field of a part. Returns `None` if the part has no known field.
pub fn change(
    rng: &mut Rng,
    part: &Part,
    bytes: &mut [u8],
    numbers: &Numbers,
) -> Option<FieldChange> {
    let fields = fields(part.kind, bytes);
    let fits = |field: &&Field| field.at + field.len <= bytes.len();
    let fields: Vec<&Field> = fields.iter().filter(fits).collect();
    let field = rng.choice(fields)?;
    let (old, bits) = (field.read(bytes), field.len as u32 * 8);
    let max = u64::MAX >> (64 - bits);
    let number = |rng: &mut Rng, of: &[u64]| rng.choice(of).copied().unwrap_or(3);
    let new = match rng.u32(..14) {
        0 => 0,
        1 => 1,
        2 => max,
        3 => max - 1,
        4 | 5 => old ^ 1 << rng.u32(..bits),
        6 => old.wrapping_add(1),
        7 => old.wrapping_sub(1),
        8 => numbers.blocks,
        9 => numbers.blocks.saturating_sub(1),
        10 => number(rng, &numbers.inos),
        11 => number(rng, &numbers.used),
        12 => rng.u64(..64),
        _ => max / 2 + rng.u64(..2),
    } & max;
    if new == old {
        return None;
    }
    field.write(bytes, new);
    Some(FieldChange { name: field.name, at: field.at, old, new })
}

const fn field(name: &'static str, at: usize, len: usize) -> Field {
    Field { name, at, len, order: Order::Little }
}

const fn big(name: &'static str, at: usize) -> Field {
    Field { name, at, len: 4, order: Order::Big }
}

/// Source of all names and offsets: kernel documentation, *ext4 Data Structures and Algorithms*.
const SUPERBLOCK: &[Field] = &[
    field("s_inodes_count", 0x0, 4),
    field("s_blocks_count_lo", 0x4, 4),
    field("s_r_blocks_count_lo", 0x8, 4),
    field("s_free_blocks_count_lo", 0xc, 4),
    field("s_free_inodes_count", 0x10, 4),
    field("s_first_data_block", 0x14, 4),
    field("s_log_block_size", 0x18, 4),
    field("s_log_cluster_size", 0x1c, 4),
    field("s_blocks_per_group", 0x20, 4),
    field("s_clusters_per_group", 0x24, 4),
    field("s_inodes_per_group", 0x28, 4),
    field("s_mnt_count", 0x34, 2),
    field("s_magic", 0x38, 2),
    field("s_state", 0x3a, 2),
    field("s_errors", 0x3c, 2),
    field("s_creator_os", 0x48, 4),
    field("s_rev_level", 0x4c, 4),
    field("s_def_resuid", 0x50, 2),
    field("s_first_ino", 0x54, 4),
    field("s_inode_size", 0x58, 2),
    field("s_block_group_nr", 0x5a, 2),
    field("s_feature_compat", 0x5c, 4),
    field("s_feature_incompat", 0x60, 4),
    field("s_feature_ro_compat", 0x64, 4),
    field("s_uuid", 0x68, 4),
    field("s_reserved_gdt_blocks", 0xce, 2),
    field("s_journal_inum", 0xe0, 4),
    field("s_journal_dev", 0xe4, 4),
    field("s_last_orphan", 0xe8, 4),
    field("s_hash_seed", 0xec, 4),
    field("s_def_hash_version", 0xfc, 1),
    field("s_jnl_backup_type", 0xfd, 1),
    field("s_desc_size", 0xfe, 2),
    field("s_default_mount_opts", 0x100, 4),
    field("s_first_meta_bg", 0x104, 4),
    field("s_jnl_blocks[0]", 0x10c, 4),
    field("s_jnl_blocks[4]", 0x11c, 4),
    field("s_jnl_blocks[16]", 0x14c, 4),
    field("s_blocks_count_hi", 0x150, 4),
    field("s_free_blocks_count_hi", 0x158, 4),
    field("s_min_extra_isize", 0x15c, 2),
    field("s_want_extra_isize", 0x15e, 2),
    field("s_flags", 0x160, 4),
    field("s_raid_stride", 0x164, 2),
    field("s_mmp_update_interval", 0x166, 2),
    field("s_mmp_block", 0x168, 8),
    field("s_log_groups_per_flex", 0x174, 1),
    field("s_checksum_type", 0x175, 1),
    field("s_encryption_level", 0x176, 1),
    field("s_snapshot_inum", 0x180, 4),
    field("s_error_count", 0x194, 4),
    field("s_usr_quota_inum", 0x240, 4),
    field("s_grp_quota_inum", 0x244, 4),
    field("s_overhead_clusters", 0x248, 4),
    field("s_backup_bgs[0]", 0x24c, 4),
    field("s_backup_bgs[1]", 0x250, 4),
    field("s_encrypt_algos", 0x254, 4),
    field("s_lpf_ino", 0x268, 4),
    field("s_prj_quota_inum", 0x26c, 4),
    field("s_checksum_seed", 0x270, 4),
    field("s_encoding", 0x27c, 2),
    field("s_encoding_flags", 0x27e, 2),
    field("s_orphan_file_inum", 0x280, 4),
];

const DESCRIPTOR: &[Field] = &[
    field("bg_block_bitmap_lo", 0x0, 4),
    field("bg_inode_bitmap_lo", 0x4, 4),
    field("bg_inode_table_lo", 0x8, 4),
    field("bg_free_blocks_count_lo", 0xc, 2),
    field("bg_free_inodes_count_lo", 0xe, 2),
    field("bg_used_dirs_count_lo", 0x10, 2),
    field("bg_flags", 0x12, 2),
    field("bg_exclude_bitmap_lo", 0x14, 4),
    field("bg_block_bitmap_csum_lo", 0x18, 2),
    field("bg_inode_bitmap_csum_lo", 0x1a, 2),
    field("bg_itable_unused_lo", 0x1c, 2),
    field("bg_block_bitmap_hi", 0x20, 4),
    field("bg_inode_bitmap_hi", 0x24, 4),
    field("bg_inode_table_hi", 0x28, 4),
    field("bg_free_blocks_count_hi", 0x2c, 2),
    field("bg_free_inodes_count_hi", 0x2e, 2),
    field("bg_used_dirs_count_hi", 0x30, 2),
    field("bg_itable_unused_hi", 0x32, 2),
    field("bg_block_bitmap_csum_hi", 0x38, 2),
    field("bg_reserved", 0x3c, 4),
];

const INODE: &[Field] = &[
    field("i_mode", 0x0, 2),
    field("i_uid", 0x2, 2),
    field("i_size_lo", 0x4, 4),
    field("i_atime", 0x8, 4),
    field("i_ctime", 0xc, 4),
    field("i_mtime", 0x10, 4),
    field("i_dtime", 0x14, 4),
    field("i_gid", 0x18, 2),
    field("i_links_count", 0x1a, 2),
    field("i_blocks_lo", 0x1c, 4),
    field("i_flags", 0x20, 4),
    field("i_version", 0x24, 4),
    field("i_generation", 0x64, 4),
    field("i_file_acl_lo", 0x68, 4),
    field("i_size_high", 0x6c, 4),
    field("i_obso_faddr", 0x70, 4),
    field("i_blocks_high", 0x74, 2),
    field("i_file_acl_high", 0x76, 2),
    field("i_uid_high", 0x78, 2),
    field("i_gid_high", 0x7a, 2),
    field("i_reserved", 0x7e, 2),
    field("i_extra_isize", 0x80, 2),
    field("i_ctime_extra", 0x84, 4),
    field("i_atime_extra", 0x8c, 4),
    field("i_crtime", 0x90, 4),
    field("i_projid", 0x9c, 4),
];

const LOG: &[Field] = &[
    big("h_magic", 0x0),
    big("h_blocktype", 0x4),
    big("h_sequence", 0x8),
    big("s_blocksize", 0xc),
    big("s_maxlen", 0x10),
    big("s_first", 0x14),
    big("s_sequence", 0x18),
    big("s_start", 0x1c),
    big("s_errno", 0x20),
    big("s_feature_compat", 0x24),
    big("s_feature_incompat", 0x28),
    big("s_feature_ro_compat", 0x2c),
    big("s_uuid", 0x30),
    big("s_nr_users", 0x40),
    big("s_dynsuper", 0x44),
    big("s_max_transaction", 0x48),
    field("s_checksum_type", 0x50, 1),
    big("s_num_fc_blocks", 0x54),
    big("s_head", 0x58),
    big("s_users[0]", 0x100),
];

fn fields(kind: Kind, bytes: &[u8]) -> Vec<Field> {
    match kind {
        Kind::Superblock => SUPERBLOCK.to_vec(),
        Kind::Descriptor { .. } => DESCRIPTOR.to_vec(),
        Kind::BlockBitmap { .. } | Kind::InodeBitmap { .. } => bitmap(bytes),
        Kind::Inode { .. } => inode(bytes),
        Kind::Node { .. } => {
            let mut fields = Vec::new();
            extents(bytes, 0, &mut fields);
            fields
        }
        Kind::Pointers => words("pointer", bytes, 0),
        Kind::Leaf { .. } => leaf(bytes),
        Kind::Index { root, .. } => index(bytes, root),
        Kind::Attributes { .. } => {
            let names = ["h_magic", "h_refcount", "h_blocks", "h_hash"];
            let mut fields: Vec<_> =
                names.iter().enumerate().map(|(n, name)| field(name, n * 4, 4)).collect();
            attributes(bytes, 32, &mut fields);
            fields
        }
        Kind::Orphans { .. } => {
            let mut fields = words("orphan", bytes, 0);
            fields.push(field("ob_magic", bytes.len() - 8, 4));
            fields
        }
        Kind::Log => LOG.to_vec(),
        Kind::Quotas => quotas(bytes),
    }
}

fn read16(bytes: &[u8], at: usize) -> usize {
    bytes.get(at..at + 2).map_or(0, |word| usize::from(u16::from_le_bytes([word[0], word[1]])))
}

/// Returns the words of a block: those that are not zero, and a few others.
fn words(name: &'static str, bytes: &[u8], from: usize) -> Vec<Field> {
    let is_used = |at: &usize| bytes[*at..*at + 4] != [0; 4];
    let used = (from..bytes.len() - 8).step_by(4).filter(is_used);
    let few = (from..bytes.len() - 8).step_by(bytes.len() / 8);
    used.chain(few).map(|at| field(name, at, 4)).collect()
}

fn bitmap(bytes: &[u8]) -> Vec<Field> {
    let used = bytes.iter().rposition(|byte| *byte != 0 && *byte != 0xff).unwrap_or(0);
    (0..(used + 4).min(bytes.len())).map(|at| field("byte", at, 1)).collect()
}

fn inode(bytes: &[u8]) -> Vec<Field> {
    let mut fields = INODE.to_vec();
    let flags = u32::from_le_bytes([bytes[0x20], bytes[0x21], bytes[0x22], bytes[0x23]]);
    if flags & 0x8_0000 != 0 {
        extents(&bytes[..0x64], 0x28, &mut fields);
    } else {
        fields.extend((0..15).map(|n| field("i_block", 0x28 + n * 4, 4)));
    }
    let area = 0x80 + read16(bytes, 0x80);
    if bytes.len() > 0x80 && bytes.get(area..area + 4) == Some(&[0, 0, 2, 0xea]) {
        fields.push(field("ibody magic", area, 4));
        attributes(bytes, area + 4, &mut fields);
    }
    fields
}

fn extents(bytes: &[u8], at: usize, fields: &mut Vec<Field>) {
    let header = ["eh_magic", "eh_entries", "eh_max", "eh_depth"];
    fields.extend(header.iter().enumerate().map(|(n, name)| field(name, at + n * 2, 2)));
    fields.push(field("eh_generation", at + 8, 4));
    let (count, depth) = (read16(bytes, at + 2), read16(bytes, at + 6));
    for entry in (0..count.min(400)).map(|n| at + 12 + n * 12) {
        if depth > 0 {
            fields.extend([field("ei_block", entry, 4), field("ei_leaf_lo", entry + 4, 4)]);
            fields.extend([field("ei_leaf_hi", entry + 8, 2), field("ei_unused", entry + 10, 2)]);
        } else {
            fields.extend([field("ee_block", entry, 4), field("ee_len", entry + 4, 2)]);
            fields.extend([field("ee_start_hi", entry + 6, 2), field("ee_start_lo", entry + 8, 4)]);
        }
    }
}

fn entry(at: usize, name_len: usize, fields: &mut Vec<Field>) {
    fields.extend([field("inode", at, 4), field("rec_len", at + 4, 2)]);
    fields.extend([field("name_len", at + 6, 1), field("file_type", at + 7, 1)]);
    if name_len > 0 {
        fields.push(field("name", at + 8, 1));
        fields.push(field("name", at + 8 + name_len - 1, 1));
    }
}

fn leaf(bytes: &[u8]) -> Vec<Field> {
    let (mut fields, mut at) = (Vec::new(), 0);
    while at + 12 <= bytes.len() {
        let len = read16(bytes, at + 4);
        entry(at, usize::from(bytes[at + 6]).min(len.saturating_sub(8)), &mut fields);
        if len < 12 || at + len > bytes.len() {
            break;
        }
        at += len;
    }
    let tail = bytes.len() - 12;
    fields.extend([field("tail inode", tail, 4), field("tail rec_len", tail + 4, 2)]);
    fields.extend([field("tail name_len", tail + 6, 1), field("tail file_type", tail + 7, 1)]);
    fields
}

fn index(bytes: &[u8], root: bool) -> Vec<Field> {
    let mut fields = Vec::new();
    let start = if root { 0x20 } else { 8 };
    entry(0, 1, &mut fields);
    if root {
        entry(12, 2, &mut fields);
        fields.extend([field("reserved", 0x18, 4), field("hash_version", 0x1c, 1)]);
        fields.extend([field("info_length", 0x1d, 1), field("indirect_levels", 0x1e, 1)]);
        fields.push(field("unused_flags", 0x1f, 1));
    }
    fields.extend([field("limit", start, 2), field("count", start + 2, 2)]);
    fields.push(field("block", start + 4, 4));
    let count = read16(bytes, start + 2);
    for at in (1..count).map(|n| start + n * 8).filter(|at| at + 8 <= bytes.len()) {
        fields.extend([field("hash", at, 4), field("block", at + 4, 4)]);
    }
    fields
}

fn attributes(bytes: &[u8], first: usize, fields: &mut Vec<Field>) {
    let mut at = first;
    while at + 16 <= bytes.len() && bytes[at..at + 4] != [0; 4] {
        fields.extend([field("e_name_len", at, 1), field("e_name_index", at + 1, 1)]);
        fields.extend([field("e_value_offs", at + 2, 2), field("e_value_inum", at + 4, 4)]);
        fields.extend([field("e_value_size", at + 8, 4), field("e_hash", at + 12, 4)]);
        let len = usize::from(bytes[at]);
        if len > 0 {
            fields.push(field("e_name", at + 16, 1));
        }
        let value = first.saturating_sub(if first == 32 { 32 } else { 0 }) + read16(bytes, at + 2);
        if read16(bytes, at + 8) > 0 && value + 4 <= bytes.len() {
            fields.push(field("value", value, 4));
        }
        at += 16 + len.next_multiple_of(4);
    }
}

fn quotas(bytes: &[u8]) -> Vec<Field> {
    let names = [
        "dqh_magic",
        "dqh_version",
        "dqi_bgrace",
        "dqi_igrace",
        "dqi_flags",
        "dqi_blocks",
        "dqi_free_blk",
        "dqi_free_entry",
    ];
    let head = names.iter().enumerate().map(|(n, name)| field(name, n * 4, 4));
    head.chain(words("word", bytes, 0)).collect()
}
