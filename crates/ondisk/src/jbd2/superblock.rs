//! The journal's superblock: the first block of the journal file.

use crate::cause::Jbd2Cause as Cause;
use crate::checksum::Seed;
use crate::error::Unsupported;
use crate::jbd2::block::{BlockNumbers, Header, LogChecksums, LogFormat, RawHeader, Sequence};
use crate::types::{Block, BlockKind, BlockSize};
use bitflags::bitflags;
use std::ops::Range;
use zerocopy::big_endian::U32;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

const SIZE: usize = 1024;
/// The largest number of file systems whose UUIDs fit into the superblock.
const USERS: usize = 48;
/// `JBD2_MIN_JOURNAL_BLOCKS`.
const MIN_BLOCKS: u32 = 1024;
/// The largest number of blocks before the log. A journal on a device of its own with blocks of 1
/// KiB has the boot block and two superblocks before the log.
const MOST_BEFORE_LOG: u32 = 3;
/// `JBD2_DEFAULT_FAST_COMMIT_BLOCKS`: the number of blocks if `s_num_fc_blks` is 0.
const DEFAULT_FAST_COMMIT_BLOCKS: u32 = 256;
/// `JBD2_CRC32C_CHKSUM`.
const CHECKSUM_CRC32C: u8 = 4;

bitflags! {
    /// Features that an implementation may ignore.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct JournalCompat: u32 {
        /// A checksum for each transaction.
        const CHECKSUM = 1;
        const _ = !0;
    }
}

bitflags! {
    /// Features that an implementation must support to be allowed to replay the log.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct JournalIncompat: u32 {
        /// The log may contain revoke blocks.
        const REVOKE = 0x1;
        /// Block numbers are 64-bit.
        const BIT64 = 0x2;
        /// A commit block may reach the disk before the rest of its transaction.
        const ASYNC_COMMIT = 0x4;
        /// See [`LogChecksums::V2`].
        const CSUM_V2 = 0x8;
        /// See [`LogChecksums::V3`].
        const CSUM_V3 = 0x10;
        /// The journal may contain fast commits.
        const FAST_COMMIT = 0x20;
        const _ = !0;
    }
}

/// The form of the superblock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JournalVersion {
    /// The form without features.
    V1,
    /// The form with features.
    V2,
}

/// The bytes of the superblock; the fields have the names that the format gives them.
#[derive(Debug, Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawJournalSuperblock {
    s_header: RawHeader,
    s_blocksize: U32,
    s_maxlen: U32,
    s_first: U32,
    s_sequence: U32,
    s_start: U32,
    s_errno: U32,
    s_feature_compat: U32,
    s_feature_incompat: U32,
    s_feature_ro_compat: U32,
    s_uuid: [u8; 16],
    s_nr_users: U32,
    s_dynsuper: U32,
    s_max_transaction: U32,
    s_max_trans_data: U32,
    s_checksum_type: u8,
    s_padding2: [u8; 3],
    s_num_fc_blks: U32,
    s_head: U32,
    s_padding: [U32; 40],
    s_checksum: U32,
    s_users: [[u8; 16]; USERS],
}

const _: () = assert!(size_of::<RawJournalSuperblock>() == SIZE);
const _: () = assert!(std::mem::offset_of!(RawJournalSuperblock, s_checksum) == 0xfc);

/// A checked journal superblock. Unknown bytes stay unchanged.
#[derive(Debug, Clone)]
pub struct JournalSuperblock {
    raw: RawJournalSuperblock,
    version: JournalVersion,
    block_size: BlockSize,
}

impl JournalSuperblock {
    /// Creates the superblock of a new, empty journal of `blocks` blocks, as mkfs does.
    pub fn new(block_size: BlockSize, blocks: u32, uuid: [u8; 16]) -> JournalSuperblock {
        let mut raw = RawJournalSuperblock::new_zeroed();
        raw.s_blocksize.set(block_size.bytes() as u32);
        raw.s_maxlen.set(blocks);
        raw.s_first.set(1);
        raw.s_sequence.set(1);
        raw.s_uuid = uuid;
        raw.s_nr_users.set(1);
        JournalSuperblock { raw, version: JournalVersion::V2, block_size }
    }

    /// Creates the superblock of a new, empty journal on its own device. The superblock is in block
    /// `at` of the device. No file system uses the journal yet.
    pub fn of_device(
        block_size: BlockSize,
        blocks: u32,
        uuid: [u8; 16],
        at: Block,
    ) -> JournalSuperblock {
        let mut superblock = JournalSuperblock::new(block_size, blocks, uuid);
        superblock.raw.s_first.set(at.0 as u32 + 1);
        superblock.raw.s_nr_users.set(0);
        superblock
    }

    /// Sets how many of the journal's last blocks are for fast commits (`s_num_fc_blks`); 0 stands
    /// for `JBD2_DEFAULT_FAST_COMMIT_BLOCKS`. While the feature `fast_commit` is not set, the log
    /// uses these blocks too.
    pub fn with_fast_commit_blocks(mut self, blocks: u32) -> JournalSuperblock {
        self.raw.s_num_fc_blks.set(blocks);
        self
    }

    /// Returns the field `s_num_fc_blks`; 0 stands for `JBD2_DEFAULT_FAST_COMMIT_BLOCKS`.
    pub fn recorded_fast_commit_blocks(&self) -> u32 {
        self.raw.s_num_fc_blks.get()
    }

    /// Decodes a superblock with all checks. `bytes` are the first block of the journal file,
    /// `block_size` is the block size of the file system, and `file_blocks` is the length of the
    /// file.
    ///
    /// # Errors
    /// Any [`Cause`].
    pub fn decode(
        bytes: &[u8],
        block_size: BlockSize,
        file_blocks: u32,
    ) -> Result<JournalSuperblock, Cause> {
        JournalSuperblock::parse(bytes, block_size)?.checked(file_blocks)
    }

    /// Decodes the superblock of a journal in a file, whose log begins at block 1, whatever the
    /// superblock says. A log that is too short has the length of the file. If it has no room for
    /// its fast commits, they are left out, as in e2fsck. Otherwise like
    /// [`JournalSuperblock::decode`].
    ///
    /// # Errors
    /// Any [`Cause`].
    pub fn decode_in_file(
        bytes: &[u8],
        block_size: BlockSize,
        file_blocks: u32,
    ) -> Result<JournalSuperblock, Cause> {
        let mut superblock = JournalSuperblock::parse(bytes, block_size)?;
        superblock.raw.s_first.set(1);
        if superblock.blocks() < MIN_BLOCKS {
            superblock.raw.s_maxlen.set(file_blocks);
        }
        if superblock.log_area().end < MIN_BLOCKS {
            let incompat = superblock.incompat() - JournalIncompat::FAST_COMMIT;
            superblock.set_features(superblock.compat(), incompat);
            superblock.raw.s_num_fc_blks.set(0);
        }
        superblock.checked(file_blocks)
    }

    fn parse(bytes: &[u8], block_size: BlockSize) -> Result<JournalSuperblock, Cause> {
        let (raw, _) = RawJournalSuperblock::read_from_prefix(bytes)
            .map_err(|_| Cause::Length { len: bytes.len() })?;
        let version = match Header::decode(bytes).map(|header| header.kind) {
            Some(BlockKind::SuperblockV1) => JournalVersion::V1,
            Some(BlockKind::SuperblockV2) => JournalVersion::V2,
            _ => return Err(Cause::NotASuperblock),
        };
        let superblock = JournalSuperblock { raw, version, block_size };
        superblock.check_checksum().map(|()| superblock)
    }

    fn checked(self, file_blocks: u32) -> Result<JournalSuperblock, Cause> {
        let raw = &self.raw;
        let found = raw.s_blocksize.get();
        if found as usize != self.block_size.bytes() {
            return Err(Cause::BlockSize { found });
        }
        let blocks = raw.s_maxlen.get();
        if blocks > file_blocks {
            return Err(Cause::BeyondFile { blocks, file_blocks });
        }
        let first = raw.s_first.get();
        if first == 0 || first >= blocks {
            return Err(Cause::First { first });
        }
        let end = self.log_area().end;
        if end < MIN_BLOCKS || end.saturating_sub(first) < MIN_BLOCKS - MOST_BEFORE_LOG {
            return Err(Cause::TooShort { blocks });
        }
        let start = raw.s_start.get();
        if start != 0 && !self.log_area().contains(&start) {
            return Err(Cause::Start { start });
        }
        Ok(self)
    }

    fn check_checksum(&self) -> Result<(), Cause> {
        let incompat = self.incompat();
        let kinds = [
            self.compat().contains(JournalCompat::CHECKSUM),
            incompat.contains(JournalIncompat::CSUM_V2),
            incompat.contains(JournalIncompat::CSUM_V3),
        ];
        if kinds.iter().filter(|&&set| set).count() > 1 {
            return Err(Cause::ChecksumKinds);
        }
        if !has_block_checksums(incompat) {
            return Ok(());
        }
        if self.raw.s_checksum_type != CHECKSUM_CRC32C {
            return Err(Cause::ChecksumType { found: self.raw.s_checksum_type });
        }
        let (found, expected) = (self.raw.s_checksum.get(), checksum(&self.raw));
        (found == expected).then_some(()).ok_or(Cause::Checksum { found, expected })
    }

    /// Returns the first 1024 bytes of the journal's first block, with the checksum set.
    pub fn encode(&self) -> [u8; SIZE] {
        let mut raw = self.raw.clone();
        let kind = match self.version {
            JournalVersion::V1 => BlockKind::SuperblockV1,
            JournalVersion::V2 => BlockKind::SuperblockV2,
        };
        let sequence = Sequence(raw.s_header.h_sequence.get());
        Header { kind, sequence }.encode_into(raw.s_header.as_mut_bytes());
        if has_block_checksums(self.incompat()) {
            raw.s_checksum_type = CHECKSUM_CRC32C;
            raw.s_checksum.set(checksum(&raw));
        }
        let mut bytes = [0; SIZE];
        bytes.copy_from_slice(raw.as_bytes());
        bytes
    }

    /// Returns the form of the superblock.
    pub fn version(&self) -> JournalVersion {
        self.version
    }

    /// Returns the features that may be ignored if unknown.
    pub fn compat(&self) -> JournalCompat {
        match self.version {
            JournalVersion::V1 => JournalCompat::empty(),
            JournalVersion::V2 => JournalCompat::from_bits_retain(self.raw.s_feature_compat.get()),
        }
    }

    /// Returns the features that a program must know to replay the log.
    pub fn incompat(&self) -> JournalIncompat {
        match self.version {
            JournalVersion::V1 => JournalIncompat::empty(),
            JournalVersion::V2 => {
                JournalIncompat::from_bits_retain(self.raw.s_feature_incompat.get())
            }
        }
    }

    /// Fails if Lanefs cannot replay and write this journal.
    ///
    /// The feature `fast_commit` only says that there may be fast commits, which
    /// [`super::FastCommits`] reads. So it is supported.
    ///
    /// # Errors
    /// [`Unsupported`] for unknown features.
    pub fn support(&self) -> Result<(), Unsupported> {
        let known = JournalIncompat::REVOKE
            | JournalIncompat::BIT64
            | JournalIncompat::ASYNC_COMMIT
            | JournalIncompat::CSUM_V2
            | JournalIncompat::CSUM_V3
            | JournalIncompat::FAST_COMMIT;
        let unknown = self.incompat().difference(known).bits();
        let read_only = match self.version {
            JournalVersion::V1 => 0,
            JournalVersion::V2 => self.raw.s_feature_ro_compat.get(),
        };
        if unknown == 0 && read_only == 0 {
            return Ok(());
        }
        Err(Unsupported { what: format!("journal features {unknown:#x} and {read_only:#x}") })
    }

    /// Returns the layout of log blocks.
    pub fn format(&self) -> LogFormat {
        let incompat = self.incompat();
        let seed = Seed::of_uuid(&self.raw.s_uuid);
        let checksums = if incompat.contains(JournalIncompat::CSUM_V3) {
            LogChecksums::V3(seed)
        } else if incompat.contains(JournalIncompat::CSUM_V2) {
            LogChecksums::V2(seed)
        } else if self.compat().contains(JournalCompat::CHECKSUM) {
            LogChecksums::Transaction
        } else {
            LogChecksums::None
        };
        let numbers = match incompat.contains(JournalIncompat::BIT64) {
            true => BlockNumbers::Bits64,
            false => BlockNumbers::Bits32,
        };
        LogFormat { block_size: self.block_size, checksums, numbers }
    }

    /// Returns the blocks of the journal file that the log uses as a ring.
    pub fn log_area(&self) -> Range<u32> {
        let end = self.raw.s_maxlen.get().saturating_sub(self.fast_commit_blocks());
        self.raw.s_first.get()..end
    }

    /// Returns the blocks of the journal file that are for fast commits; empty without the feature.
    /// The kernel leaves one block unused between the log and these blocks.
    pub fn fast_commit_area(&self) -> Range<u32> {
        let blocks = self.raw.s_maxlen.get();
        self.log_area().end.saturating_add(1).min(blocks)..blocks
    }

    /// Returns whether the journal may get [`JournalIncompat::FAST_COMMIT`]. The kernel sets this
    /// feature only if at least 1024 blocks (`JBD2_MIN_JOURNAL_BLOCKS`) remain for the log.
    pub fn has_room_for_fast_commits(&self) -> bool {
        self.raw.s_maxlen.get().saturating_sub(self.wanted_fast_commit_blocks()) >= MIN_BLOCKS
    }

    fn fast_commit_blocks(&self) -> u32 {
        match self.incompat().contains(JournalIncompat::FAST_COMMIT) {
            true => self.wanted_fast_commit_blocks(),
            false => 0,
        }
    }

    fn wanted_fast_commit_blocks(&self) -> u32 {
        match self.recorded_fast_commit_blocks() {
            0 => DEFAULT_FAST_COMMIT_BLOCKS,
            blocks => blocks,
        }
    }

    /// Returns the length of the journal file in blocks, including the block of this superblock.
    pub fn blocks(&self) -> u32 {
        self.raw.s_maxlen.get()
    }

    /// Returns the number of the first transaction in the log.
    pub fn sequence(&self) -> Sequence {
        Sequence(self.raw.s_sequence.get())
    }

    /// Returns the block where the log starts; `None` if there is no transaction to replay.
    pub fn start(&self) -> Option<u32> {
        let start = self.raw.s_start.get();
        (start != 0).then_some(start)
    }

    /// Returns the block where the log of a cleanly closed journal may continue; 0 if this block
    /// was not recorded.
    pub fn head(&self) -> u32 {
        self.raw.s_head.get()
    }

    /// Returns the (negative) error number with which the journal was aborted, or 0.
    pub fn errno(&self) -> i32 {
        self.raw.s_errno.get() as i32
    }

    /// Returns the journal's uuid, from which its checksums start.
    pub fn uuid(&self) -> [u8; 16] {
        self.raw.s_uuid
    }

    /// Returns the number of file systems that use the journal: 1 for a journal in a file.
    pub fn user_count(&self) -> u32 {
        self.raw.s_nr_users.get()
    }

    /// Returns the UUIDs of the file systems that use a journal on its own device.
    pub fn users(&self) -> &[[u8; 16]] {
        let count = usize::try_from(self.user_count()).unwrap_or(USERS).min(USERS);
        self.raw.s_users.get(..count).unwrap_or_default()
    }

    /// Makes `user` the only file system that uses a journal on its own device.
    pub fn set_user(&mut self, user: [u8; 16]) {
        self.raw.s_nr_users.set(1);
        self.raw.s_users = [[0; 16]; USERS];
        if let Some(first) = self.raw.s_users.first_mut() {
            *first = user;
        }
    }

    /// See [`JournalSuperblock::sequence`].
    pub fn set_sequence(&mut self, sequence: Sequence) {
        self.raw.s_sequence.set(sequence.0);
    }

    /// See [`JournalSuperblock::start`]. A start outside of the log is an error of the caller.
    pub fn set_start(&mut self, start: Option<u32>) {
        debug_assert!(start.is_none_or(|start| self.log_area().contains(&start)));
        self.raw.s_start.set(start.unwrap_or(0));
    }

    /// See [`JournalSuperblock::head`].
    pub fn set_head(&mut self, head: u32) {
        self.raw.s_head.set(head);
    }

    /// See [`JournalSuperblock::errno`].
    pub fn set_errno(&mut self, errno: i32) {
        self.raw.s_errno.set(errno as u32);
    }

    /// Sets all features. Allowed for an empty log only, since the features determine how the log's
    /// blocks are read. Changes the superblock to version 2.
    pub fn set_features(&mut self, compat: JournalCompat, incompat: JournalIncompat) {
        self.version = JournalVersion::V2;
        self.raw.s_feature_compat.set(compat.bits());
        self.raw.s_feature_incompat.set(incompat.bits());
        if !has_block_checksums(incompat) {
            self.raw.s_checksum_type = 0;
            self.raw.s_checksum.set(0);
        }
    }

    /// Sets [`JournalIncompat::REVOKE`]. May be called at any time before the first revoke block is
    /// committed.
    pub fn add_revoke(&mut self) {
        let incompat = self.incompat() | JournalIncompat::REVOKE;
        self.raw.s_feature_incompat.set(incompat.bits());
    }
}

fn has_block_checksums(incompat: JournalIncompat) -> bool {
    incompat.intersects(JournalIncompat::CSUM_V2 | JournalIncompat::CSUM_V3)
}

/// Computes the checksum over all 1024 bytes, with the checksum itself taken as zero. The seed is
/// always all ones.
fn checksum(raw: &RawJournalSuperblock) -> u32 {
    let mut raw = raw.clone();
    raw.s_checksum.set(0);
    Seed::START.chain(raw.as_bytes()).value()
}
